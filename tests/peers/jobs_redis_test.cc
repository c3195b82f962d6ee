// The example jobs_redis and a redis-server.
#include "gtest/gtest.h"
#include "tests/peers/jobs.h"
#include "tests/peers/peers.h"

namespace gump::testing {
namespace {

GUMP_NEEDS_PROGRAMS("redis-server", "setpriv");

const QueueServer kRedis = {
    .example = "jobs_redis",
    .package = "libhiredis-dev",
    // Each write is in the log before it is answered.
    .command =
        [](const std::string& port, const std::string& folder) {
          return std::vector<std::string>{
              "redis-server", "--bind", "127.0.0.1",
              "--port",       port,     "--dir",
              folder,         "--save", "",
              "--appendonly", "yes",    "--appendfsync",
              "always"};
        },
    .ready = "eady to accept connections",
};
const ::testing::Environment* const kNeedsExample =
    ::testing::AddGlobalTestEnvironment(new NeedsExample(kRedis));

using JobsRedisTest = Peers;

TEST_F(JobsRedisTest, KilledAndStalledWorkersLeaveTheTotalExact) {
  Run([] { KilledAndStalledWorkersLeaveTheTotalExact(kRedis); });
}

TEST_F(JobsRedisTest, KilledServerAndCoordinatorLeaveTheTotalExact) {
  Run([] { KilledServerAndCoordinatorLeaveTheTotalExact(kRedis); });
}

}  // namespace
}  // namespace gump::testing
