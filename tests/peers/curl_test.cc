// http_server and curl.
#include <gump/gump.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/peers/peers.h"

namespace gump::testing {
namespace {

GUMP_NEEDS_PROGRAMS("curl");
using CurlTest = Peers;

TEST_F(CurlTest, ConnectionsAreKeptAlive) {
  Run([] {
    Server server("http_server");
    const std::string url = "http://" + server.Address() + "/";
    EXPECT_EQ(OutputOf("curl", "-sS", "-w", "%{http_code} %{num_connects}\n",
                       url, url, url),
              "Hello, gopher!\n200 1\n"
              "Hello, gopher!\n200 0\n"
              "Hello, gopher!\n200 0\n");
    EXPECT_EQ(server.Stop(), absl::OkStatus());
  });
}

TEST_F(CurlTest, HeadHasTheFieldsAndNoBody) {
  Run([] {
    Server server("http_server");
    const std::string head =
        OutputOf("curl", "-sS", "--head", "http://" + server.Address() + "/");
    EXPECT_NE(head.find("HTTP/1.1 200 OK\r\n"), head.npos) << head;
    EXPECT_NE(head.find("Content-Length: 15\r\n"), head.npos) << head;
    EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
  });
}

TEST_F(CurlTest, BodiesComeBack) {
  Run([] {
    Server server("http_server");
    TempDir dir;
    const std::string echo = "http://" + server.Address() + "/echo";
    for (const char* size : {"0", "1", "5000", "5000000"}) {
      OutputOfShell(
          absl::StrCat("head -c ", size, " /dev/urandom >", dir / "sent"));
      // The last makes curl ask before it sends.
      for (const char* field : {"Accept: */*", "Transfer-Encoding: chunked",
                                "Expect: 100-continue"}) {
        OutputOf("curl", "-sSf", "--data-binary",
                 absl::StrCat("@", dir / "sent"), "-H", field, "-o",
                 dir / "got", echo);
        OutputOf("cmp", dir / "sent", dir / "got");
      }
    }
  });
}

TEST_F(CurlTest, BodiesOfUnknownLengthArrive) {
  Run([] {
    Server server("http_server");
    const std::string url = "http://" + server.Address() + "/bytes/3000000";
    const char* const format = "%{http_version} %{size_download}";
    EXPECT_EQ(OutputOf("curl", "-sS", "-o", "/dev/null", "-w", format, url),
              "1.1 3000000");
    EXPECT_EQ(OutputOf("curl", "-sS", "--http1.0", "-o", "/dev/null", "-w",
                       format, url),
              "1.1 3000000");
  });
}

TEST_F(CurlTest, RefusalsAreUnderstood) {
  Run([] {
    Server server("http_server");
    TempDir dir;
    const std::string url = "http://" + server.Address();
    OutputOfShell(absl::StrCat("head -c 9000000 /dev/zero >", dir / "large"));
    const auto code = [&](const std::string& options) {
      return OutputOfShell("curl -sS -o /dev/null -w '%{http_code}' " +
                           options);
    };
    EXPECT_EQ(code(url + "/nowhere"), "404");
    EXPECT_EQ(code("-d x " + url + "/"), "405");
    EXPECT_EQ(code("-X BREW " + url + "/"), "405");
    EXPECT_EQ(
        code(absl::StrCat("--data-binary @", dir / "large", " ", url, "/echo")),
        "413");
    EXPECT_EQ(code("-H 'X: " + std::string(20'000, 'x') + "' " + url + "/"),
              "431");
    EXPECT_EQ(code("-H 'Content-Length: 1x' " + url + "/"), "400");
    EXPECT_EQ(code(url + "/"), "200") << "it has survived all that";
  });
}

TEST_F(CurlTest, UnixSocketsServeToo) {
  Run([] {
    TempDir dir;
    Server server("http_server", {absl::StrCat("unix:", dir / "http.sock")});
    EXPECT_EQ(server.Address(), dir / "http.sock");
    EXPECT_EQ(OutputOf("curl", "-sS", "--unix-socket", server.Address(),
                       "http://localhost/"),
              "Hello, gopher!\n");
    EXPECT_EQ(server.Stop(), absl::OkStatus());
    EXPECT_NE(access(server.Address().c_str(), F_OK), 0) << "it is removed";
  });
}

}  // namespace
}  // namespace gump::testing
