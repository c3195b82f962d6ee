// echo_server, chat_server and socks5_proxy; nc, socat and curl.
#include <gump/gump.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/peers/peers.h"
#include "tests/testing/held_port.h"

namespace gump::testing {
namespace {

GUMP_NEEDS_PROGRAMS("curl", "nc", "socat");
using NcTest = Peers;

// Fill makes a file of n random bytes.
std::string Fill(const TempDir& dir, int n) {
  const std::string path = dir / "sent";
  OutputOfShell(absl::StrCat("head -c ", n, " /dev/urandom >", path));
  return path;
}

TEST_F(NcTest, DataSentOverTcpComesBack) {
  Run([] {
    TempDir dir;
    Server server("echo_server", {"serve", "127.0.0.1:0"});
    const std::string sent = Fill(dir, 3'000'000);
    const std::string got = dir / "got";
    for (const std::string& peer :
         {absl::StrCat("nc -N 127.0.0.1 ", server.Port()),
          absl::StrCat("socat -t60 - TCP:", server.Address())}) {
      OutputOfShell(absl::StrCat(peer, " <", sent, " >", got));
      OutputOf("cmp", sent, got);
    }
    EXPECT_EQ(server.Stop(), absl::OkStatus());
  });
}

TEST_F(NcTest, DataSentOverAUnixSocketComesBack) {
  Run([] {
    TempDir dir;
    Server server("echo_server",
                  {"serve", absl::StrCat("unix:", dir / "echo.sock")});
    const std::string sent = Fill(dir, 3'000'000);
    const std::string got = dir / "got";
    for (const std::string& peer :
         {absl::StrCat("nc -N -U ", server.Address()),
          absl::StrCat("socat -t60 - UNIX-CONNECT:", server.Address())}) {
      OutputOfShell(absl::StrCat(peer, " <", sent, " >", got));
      OutputOf("cmp", sent, got);
    }
    EXPECT_EQ(server.Stop(), absl::OkStatus());
  });
}

// ---- The proxy

TEST_F(NcTest, TheProxyCarriesBothWaysAndHalvesClose) {
  Run([] {
    TempDir dir;
    Server echo("echo_server", {"serve", "127.0.0.1:0"});
    Server proxy("socks5_proxy");
    const std::string sent = Fill(dir, 3'000'000);
    const std::string got = dir / "got";
    OutputOfShell(absl::StrCat("nc -N -X 5 -x ", proxy.Address(), " 127.0.0.1 ",
                               echo.Port(), " <", sent, " >", got));
    OutputOf("cmp", sent, got);
    EXPECT_EQ(proxy.Stop(), absl::OkStatus());
  });
}

TEST_F(NcTest, TheProxyLooksUpNames) {
  Run([] {
    const HeldPorts ports;
    Server http("http_server", {ports.four().Address()});
    Server proxy("socks5_proxy");
    for (const char* option : {"--socks5", "--socks5-hostname"}) {
      EXPECT_EQ(OutputOf("curl", "-sS", option, proxy.Address(),
                         absl::StrCat("http://localhost:", http.Port(), "/")),
                "Hello, gopher!\n");
    }
  });
}

TEST_F(NcTest, TheProxyGivesTheReasonOfARefusal) {
  Run([] {
    Server proxy("socks5_proxy");
    const HeldPort port;
    const std::string nobody = port.Address();
    // curl exits with 97 if a proxy refuses. The number is the reply's.
    const auto reply = [&](const std::string& url) {
      return OutputOfShell(absl::StrCat("curl -sS --socks5-hostname ",
                                        proxy.Address(), " http://", url,
                                        " 2>&1 || test $? = 97"));
    };
    EXPECT_NE(reply(nobody).find("(5)"), std::string::npos) << reply(nobody);
    EXPECT_NE(reply("nowhere.invalid").find("(4)"), std::string::npos)
        << reply("nowhere.invalid");
  });
}

// ---- The chat

// Guest is a participant in the chat.
class Guest {
 public:
  Guest(const Server& server, const std::string& name, int others)
      : conn_(Ready(net::Dial("tcp", server.Address()))) {
    Say(name);
    EXPECT_EQ(Hears(), absl::StrCat("* with you: ", others));
  }
  void Say(const std::string& line) const { Ready(conn_.Write(line + "\n")); }
  std::string Hears() {
    size_t lf;
    while ((lf = heard_.find('\n')) == heard_.npos) {
      char buf[1024];
      const size_t n = Ready(conn_.Read(absl::MakeSpan(buf)));
      if (n == 0) return "(the end)";
      heard_.append(buf, n);
    }
    const std::string line = heard_.substr(0, lf);
    heard_.erase(0, lf + 1);
    return line;
  }
  void Leave() const { EXPECT_TRUE(conn_.Close().ok()); }

 private:
  net::Conn conn_;
  std::string heard_;
};

TEST_F(NcTest, TheChatTellsAllOtherGuests) {
  Run([] {
    Server chat("chat_server");
    Guest ann(chat, "ann", 0);
    Guest bob(chat, "bob", 1);
    EXPECT_EQ(ann.Hears(), "* bob is here");
    ann.Say("hello bob");
    EXPECT_EQ(bob.Hears(), "ann: hello bob");
    EXPECT_EQ(
        OutputOfShell(absl::StrCat(
            "printf 'eve\\nhello all\\n' | nc -N 127.0.0.1 ", chat.Port())),
        "* with you: 2\n");
    for (Guest* guest : {&ann, &bob}) {
      EXPECT_EQ(guest->Hears(), "* eve is here");
      EXPECT_EQ(guest->Hears(), "eve: hello all");
      EXPECT_EQ(guest->Hears(), "* eve has left");
    }
    bob.Leave();
    EXPECT_EQ(ann.Hears(), "* bob has left");
    EXPECT_EQ(chat.Stop(), absl::OkStatus());
  });
}

TEST_F(NcTest, TheChatDropsAGuestThatDoesNotListen) {
  Run([] {
    Server chat("chat_server");
    Guest ann(chat, "ann", 0);
    Guest bob(chat, "bob", 1);
    EXPECT_EQ(ann.Hears(), "* bob is here");
    const Guest deaf(chat, "deaf", 2);
    EXPECT_EQ(ann.Hears(), "* deaf is here");
    EXPECT_EQ(bob.Hears(), "* deaf is here");
    // Ends when the buffers on the way to the deaf guest are full, and then its
    // queue. bob listens and misses nothing.
    const std::string text(4000, 'x');
    for (int i = 0; !chat.HasSaid("dropped deaf\n"); i++) {
      ann.Say(std::to_string(i) + text);
      ASSERT_EQ(bob.Hears(), "ann: " + std::to_string(i) + text);
    }
    EXPECT_EQ(chat.Stop(), absl::OkStatus());
  });
}

}  // namespace
}  // namespace gump::testing
