// The example jobs_nats and a nats-server.
#include "gtest/gtest.h"
#include "tests/peers/jobs.h"
#include "tests/peers/peers.h"

namespace gump::testing {
namespace {

GUMP_NEEDS_PROGRAMS("nats-server", "setpriv");

const QueueServer kNats = {
    .example = "jobs_nats",
    .package = "libnats-dev",
    .command =
        [](const std::string& port, const std::string& folder) {
          return std::vector<std::string>{
              "nats-server", "--addr",      "127.0.0.1",   "--port",
              port,          "--jetstream", "--store_dir", folder};
        },
    .ready = "Server is ready",
};
const ::testing::Environment* const kNeedsExample =
    ::testing::AddGlobalTestEnvironment(new NeedsExample(kNats));

using JobsNatsTest = Peers;

TEST_F(JobsNatsTest, KilledAndStalledWorkersLeaveTheTotalExact) {
  Run([] { KilledAndStalledWorkersLeaveTheTotalExact(kNats); });
}

TEST_F(JobsNatsTest, KilledServerAndCoordinatorLeaveTheTotalExact) {
  Run([] { KilledServerAndCoordinatorLeaveTheTotalExact(kNats); });
}

}  // namespace
}  // namespace gump::testing
