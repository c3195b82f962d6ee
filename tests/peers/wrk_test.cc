// http_server and wrk.
#include <gump/gump.h>

#include <string>

#include "gtest/gtest.h"
#include "tests/peers/peers.h"

namespace gump::testing {
namespace {

GUMP_NEEDS_PROGRAMS("wrk");
using WrkTest = Peers;

TEST_F(WrkTest, NoRequestFails) {
  Run([] {
    Server server("http_server");
    for (const char* path : {"/", "/bytes/20000"}) {
      const std::string report =
          OutputOf("wrk", "-t2", "-c100", "-d1s", "--timeout", "30s",
                   "http://" + server.Address() + path);
      EXPECT_NE(report.find(" requests in "), report.npos) << report;
      EXPECT_EQ(report.find(" 0 requests in "), report.npos) << report;
      EXPECT_EQ(report.find("Socket errors"), report.npos) << report;
      EXPECT_EQ(report.find("Non-2xx"), report.npos) << report;
    }
    EXPECT_EQ(server.Stop(), absl::OkStatus());
  });
}

}  // namespace
}  // namespace gump::testing
