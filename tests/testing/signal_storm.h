// Signals without end, for tests of state that signals must not change.
#ifndef TESTS_TESTING_SIGNAL_STORM_H_
#define TESTS_TESTING_SIGNAL_STORM_H_

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/sys/sanitizer.h"

namespace gump::testing {

// SignalStorm sends SIGUSR1 to every thread of the process in turn, as long as
// it lives. The handler lets system calls end with EINTR (no SA_RESTART). It
// stays afterwards, because a thread may still have a signal pending.
class SignalStorm {
 public:
  SignalStorm() {
    handled = 0;
    struct sigaction count = {};
    count.sa_handler = [](int) { handled.fetch_add(1); };
    count.sa_flags = SA_ONSTACK;
    EXPECT_EQ(sigaction(SIGUSR1, &count, nullptr), 0);
    thread_ = std::thread([this] { Blow(); });
  }
  ~SignalStorm() {
    stop_ = true;
    thread_.join();
  }
  SignalStorm(const SignalStorm&) = delete;
  SignalStorm& operator=(const SignalStorm&) = delete;

  // Handled returns how many signals have arrived.
  static int Handled() { return handled; }

 private:
  void Blow() const {
    const pid_t self = gettid();
    while (!stop_) {
      for (const auto& entry :
           std::filesystem::directory_iterator("/proc/self/task")) {
        const pid_t tid = std::stoi(entry.path().filename().string());
        // A thread that has ended meanwhile gets none.
        if (tid != self) syscall(SYS_tgkill, getpid(), tid, SIGUSR1);
      }
      std::this_thread::sleep_for(kPause);
    }
  }

  // Without a pause no thread would get on.
  static constexpr std::chrono::microseconds kPause{rt::kSanitizerBuild ? 2000
                                                                        : 100};
  static inline std::atomic<int> handled = 0;

  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace gump::testing

#endif  // TESTS_TESTING_SIGNAL_STORM_H_
