// Linked to every stress test: GUMP_STRESS_DUMP=1 makes a thread look at
// everything every 10 ms for as long as the tests run, with the world stopped
// and without. It must change no outcome.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "gump/runtime.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runq.h"
#include "runtime/sched/runtime2.h"

namespace gump::testing {
namespace {

class Dumper : public ::testing::Environment {
 public:
  void SetUp() override {
    const char* on = std::getenv("GUMP_STRESS_DUMP");
    if (on == nullptr || std::string(on) != "1") return;
    thread_ = std::thread([this] {
      do {
        Look();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      } while (!stop_);
    });
  }

  void TearDown() override {
    if (!thread_.joinable()) return;
    stop_ = true;
    thread_.join();
    EXPECT_GT(dumps_, 0);
    std::printf("%d dumps, %llu bytes; %llu goroutines in queues\n", dumps_,
                static_cast<unsigned long long>(bytes_),
                static_cast<unsigned long long>(queued_));
  }

 private:
  void Look() {
    const std::string all = runtime::Stack(/*all=*/true);
    EXPECT_NE(all.find("goroutine "), std::string::npos);
    dumps_++;
    bytes_ += all.size();
    EXPECT_GE(runtime::NumGoroutine(), 1);
    // Read the same data as schedtrace, in the same way: under sched.lock no
    // resizing is half done.
    const rt::LockScope l(&rt::sched.lock);
    queued_ += static_cast<uint64_t>(rt::sched.runqsize.load(rt::relaxed));
    const int32_t n = rt::gomaxprocs.load(rt::relaxed);
    for (int32_t i = 0; i < n; i++) queued_ += rt::runqlen(rt::allp[i]);
  }

  std::atomic<bool> stop_ = false;
  std::thread thread_;
  // These are the thread's until it has been joined.
  int dumps_ = 0;
  uint64_t bytes_ = 0;
  uint64_t queued_ = 0;
};

[[maybe_unused]] ::testing::Environment* const dumper =
    ::testing::AddGlobalTestEnvironment(new Dumper);

}  // namespace
}  // namespace gump::testing
