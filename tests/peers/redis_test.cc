// redis_client and a redis-server.
#include <gump/gump.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/peers/peers.h"

namespace gump::testing {
namespace {

GUMP_NEEDS_PROGRAMS("redis-server");

using RedisTest = Peers;

TEST_F(RedisTest, CommandsAreAnswered) {
  Run([] {
    TempDir dir;
    const std::string socket = dir / "redis.sock";
    Program redis({"redis-server", "--port", "0", "--unixsocket", socket,
                   "--save", "", "--dir", dir / ""});
    redis.Says("eady to accept connections");
    const auto ask = [&](const auto&... command) {
      return OutputOf(Example("redis_client"), absl::StrCat("unix:", socket),
                      command...);
    };
    EXPECT_EQ(ask("PING"), "PONG\n");
    EXPECT_EQ(ask("GET", "gopher"), "(nil)\n");
    EXPECT_EQ(ask("SET", "gopher", "two\r\nlines"), "OK\n");
    EXPECT_EQ(ask("GET", "gopher"), "two\r\nlines\n");
    EXPECT_EQ(ask("INCR", "n"), "1\n");
    EXPECT_EQ(ask("INCR", "n"), "2\n");
    EXPECT_EQ(ask("RPUSH", "list", "a", "b"), "2\n");
    EXPECT_EQ(ask("LRANGE", "list", "0", "-1"), "a b\n");
    EXPECT_EQ(ask("SET", "big", std::string(100'000, 'x')), "OK\n");
    EXPECT_EQ(ask("GET", "big"), absl::StrCat(std::string(100'000, 'x'), "\n"));
    // A pipeline, and a list that one client waits for and another fills.
    EXPECT_EQ(ask(), "1000 gophers have eaten 100 carrots\n");
    EXPECT_EQ(redis.Stop(), absl::OkStatus());
  });
}

TEST_F(RedisTest, ErrorsAreReported) {
  Run([] {
    TempDir dir;
    const std::string socket = dir / "redis.sock";
    const auto ask = [&](const char* command) {
      return OutputOfShell(absl::StrCat(Example("redis_client"),
                                        " unix:", socket, " ", command,
                                        " 2>&1 || test $? = 1"));
    };
    EXPECT_NE(ask("PING").find("no such file or directory"), std::string::npos)
        << ask("PING");
    Program redis({"redis-server", "--port", "0", "--unixsocket", socket,
                   "--save", "", "--dir", dir / ""});
    redis.Says("eady to accept connections");
    EXPECT_NE(ask("NONSENSE").find("unknown command"), std::string::npos)
        << ask("NONSENSE");
  });
}

}  // namespace
}  // namespace gump::testing
