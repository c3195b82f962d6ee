// Hibernation: a goroutine that has been parked for long gives the pages of its
// stack away, and neither it nor any other user of its stack can tell.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/sleep_image.h"
#include "runtime/sched/stackguard.h"
#include "runtime/sys/tls.h"
#include "tests/testing/resident_bytes.h"
#include "tests/testing/stress.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Eventually;
using testing::ResidentBytes;
using testing::RunWith;

uint64_t Hibernated() { return rt::stats.hibernated.load(rt::relaxed); }
uint64_t Faults() { return rt::stats.stackFaults.load(rt::relaxed); }

// Hibernating lets goroutines hibernate after a millisecond, for a scope.
class Hibernating {
 public:
  Hibernating() : before_(debug::SetHibernation(absl::Milliseconds(1))) {}
  ~Hibernating() { debug::SetHibernation(before_); }

  // Await waits until n goroutines have hibernated since this scope began.
  // Returns false if that takes too long.
  [[nodiscard]] bool Await(uint64_t n) const {
    return Eventually([&] { return Hibernated() - start_ >= n; });
  }

 private:
  const absl::Duration before_;
  const uint64_t start_ = Hibernated();
};

// Available returns true if goroutines can hibernate on this machine.
bool Available() {
  static const bool available = [] {
    bool slept = false;
    RunWith(2, [&] {
      const Hibernating on;
      chan<void> gate = make_chan<void>();
      sync::WaitGroup done;
      done.Go([&] { gate.Recv(); });
      for (int i = 0; i < 2000 && !slept; i++) {
        time::Sleep(absl::Milliseconds(1));
        slept = Hibernated() > 0;
      }
      gate.Close();
      done.Wait();
    });
    return slept;
  }();
  return available;
}

// IsAway returns true if the page of a variable is not in memory. It does not
// touch the page.
bool IsAway(const volatile void* p) {
  constexpr uintptr_t kPage = 4096;
  unsigned char in = 1;
  const uintptr_t page = reinterpret_cast<uintptr_t>(p) & ~(kPage - 1);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(page), kPage, &in), 0);
  return (in & 1) == 0;
}
[[nodiscard]] bool AwaitAway(const volatile void* p) {
  return Eventually([&] { return IsAway(p); });
}

class HibernateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Available()) GTEST_SKIP() << "no hibernation here";
  }
};

// Fill writes a pattern that a goroutine keeps on its stack while it waits, and
// Intact returns true if the pattern is still there.
constexpr size_t kWords = 64;
void Fill(std::array<uint64_t, kWords>* words, uint64_t seed) {
  for (size_t i = 0; i < kWords; i++) (*words)[i] = seed * kWords + i;
  asm volatile("" : : "r"(words) : "memory");
}
[[nodiscard]] bool Intact(const std::array<uint64_t, kWords>* words,
                          uint64_t seed) {
  asm volatile("" : : "r"(words) : "memory");
  for (size_t i = 0; i < kWords; i++) {
    if ((*words)[i] != seed * kWords + i) return false;
  }
  return true;
}

TEST_F(HibernateTest, WokenGoroutine_FindsItsStackAsItLeftIt) {
  RunWith(2, [] {
    constexpr int kCrowd = 3000;
    const Hibernating on;
    chan<int> c = make_chan<int>();
    std::atomic<int> intact = 0;
    sync::WaitGroup done;
    for (int i = 0; i < kCrowd; i++) {
      done.Go([&, i] {
        std::array<uint64_t, kWords> words;
        Fill(&words, static_cast<uint64_t>(i));
        (void)c.Recv();
        intact += Intact(&words, static_cast<uint64_t>(i)) ? 1 : 0;
      });
    }
    ASSERT_TRUE(on.Await(kCrowd));
    for (int i = 0; i < kCrowd; i++) c.Send(i);
    done.Wait();
    EXPECT_EQ(intact, kCrowd);
  });
}

#if !defined(GUMP_TESTING_SANITIZED)
TEST_F(HibernateTest, SleepingGoroutine_HasNoPageOfItsStack) {
  RunWith(2, [] {
    constexpr int kCrowd = 20'000;
    chan<void> gate = make_chan<void>();
    sync::WaitGroup done;
    for (int i = 0; i < kCrowd; i++) done.Go([&] { gate.Recv(); });
    ASSERT_TRUE(
        Eventually([] { return debug::ReadSchedStats().runnable == 0; }));
    const int64_t awake = ResidentBytes();
    {
      const Hibernating on;
      ASSERT_TRUE(on.Await(kCrowd));
      EXPECT_GE((awake - ResidentBytes()) / kCrowd, 3300);
    }
    gate.Close();
    done.Wait();
  });
}
#endif

TEST_F(HibernateTest, WokenGoroutines_GiveTheirImagesBack) {
  RunWith(2, [] {
    constexpr int kCrowd = 20'000;
    const Hibernating on;
    chan<void> gate = make_chan<void>();
    sync::WaitGroup done;
    for (int i = 0; i < kCrowd; i++) done.Go([&] { gate.Recv(); });
    ASSERT_TRUE(on.Await(kCrowd));
    EXPECT_GT(rt::sleepImageBytes(), uint64_t{kCrowd} * 128);
    gate.Close();
    done.Wait();
    EXPECT_TRUE(
        Eventually([] { return rt::sleepImageBytes() < uint64_t{8} << 20; }));
  });
}

TEST_F(HibernateTest, CapturedReference_IsReadAndWrittenWhileItsOwnerSleeps) {
  RunWith(2, [] {
    constexpr int kRounds = 200;
    const Hibernating on;
    chan<std::atomic<int>*> out = make_chan<std::atomic<int>*>();
    chan<void> wake = make_chan<void>();
    sync::WaitGroup done;
    int got = 0;
    done.Go([&] {
      std::atomic<int> value = 7;
      out.Send(&value);
      wake.Recv();
      got = value;
    });
    std::atomic<int>* value = *out.Recv();
    const uint64_t before = Faults();
    for (int i = 0; i < kRounds; i++) {
      ASSERT_TRUE(AwaitAway(value));
      ASSERT_EQ(value->fetch_add(1), 7 + i);
    }
    // Each access has brought the stack back. The next pass may have taken it
    // away at once. The thread that answers a fault counts it afterwards.
    EXPECT_TRUE(Eventually([&] { return Faults() >= before + kRounds; }));
    wake.Send();
    done.Wait();
    EXPECT_EQ(got, 7 + kRounds);
  });
}

// A fault costs the waker two thread switches. Each of these goroutines waits
// with a record on its own stack, which its waker reads.
TEST_F(HibernateTest, WakerOfASleeper_DoesNotFault) {
  RunWith(2, [] {
    std::optional<Hibernating> on(std::in_place);
    chan<const volatile int*> out = make_chan<const volatile int*>();
    chan<void> sent = make_chan<void>();
    chan<void> closed = make_chan<void>();
    sync::WaitGroup ready;
    ready.Add(1);
    sync::Mutex mu;
    sync::Mutex cond_mu;
    sync::Cond one(cond_mu);
    sync::Cond all(cond_mu);
    sync::WaitGroup done;
    std::vector<const volatile int*> locals;
    const auto add = [&](auto wait) {
      done.Go([&out, wait] {
        const volatile int local = 0;
        out.Send(&local);
        wait();
        asm volatile("" : : : "memory");
      });
      locals.push_back(*out.Recv());
    };
    const auto wait_for = [&cond_mu](sync::Cond* cond) {
      cond_mu.Lock();
      cond->Wait();
      cond_mu.Unlock();
    };
    mu.Lock();
    for (int i = 0; i < 3; i++) {
      add([&] { sent.Recv(); });
      add([&] { closed.Recv(); });
      add([&] { ready.Wait(); });
      add([&] { wait_for(&one); });
      add([&] { wait_for(&all); });
      add([&] {
        mu.Lock();
        mu.Unlock();
      });
    }
    for (const volatile int* local : locals) ASSERT_TRUE(AwaitAway(local));
    // A pass takes no stack away again, because it has ended.
    on.reset();
    runtime::GC();

    const uint64_t before = Faults();
    for (int i = 0; i < 3; i++) {
      sent.Send();
      one.Signal();
    }
    closed.Close();
    ready.Done();
    all.Broadcast();
    mu.Unlock();
    done.Wait();
    EXPECT_EQ(Faults(), before);
  });
}

// CanRead returns true if the kernel can read the byte at p.
bool CanRead(uintptr_t p) {
  char byte;
  const iovec to = {&byte, 1};
  const iovec from = {reinterpret_cast<void*>(p), 1};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

// GuardsAreMarks returns true if the kernel marks guards in page tables.
bool GuardsAreMarks() {
  constexpr size_t kPage = 4096;
  constexpr int kMadvGuardInstall = 102;
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  const bool marks = madvise(page, kPage, kMadvGuardInstall) == 0;
  munmap(page, kPage);
  return marks;
}

// RunAsleep runs `goroutines` with stacks of this size, and calls f when page
// tables of theirs have been freed. Returns how many of them had both pages of
// their guard when they went on.
int RunAsleep(int goroutines, size_t stack_size, absl::FunctionRef<void()> f) {
  const auto tables = [] { return rt::stats.stackTables.load(rt::relaxed); };
  const uint64_t before = tables();
  std::atomic<int> guarded = 0;
  chan<void> gate = make_chan<void>();
  sync::WaitGroup done;
  {
    const Hibernating on;
    for (int i = 0; i < goroutines; i++) {
      done.Go(GoOptions{.stack_size = stack_size}, [&] {
        gate.Recv();
        const uintptr_t lo = rt::getg()->stack.lo;
        if (!CanRead(lo - 1) && !CanRead(lo - rt::kGuardSize)) guarded++;
      });
    }
    EXPECT_TRUE(Eventually([&] { return tables() > before; }));
  }
  f();
  gate.Close();
  done.Wait();
  return guarded;
}

// The guards go with a page table, because they would keep it in use.
TEST_F(HibernateTest, GuardOfASleeper_IsThereWhenItRuns) {
  if (!GuardsAreMarks()) GTEST_SKIP() << "guards are mappings here";
  RunWith(2, [] {
    for (int round = 0; round < 3; round++) {
      EXPECT_EQ(RunAsleep(64, 0, [] {}), 64);
      // With small stacks, some guards lie half in one table and half in the
      // next.
      EXPECT_EQ(RunAsleep(600, 16 << 10, [] {}), 600);
    }
  });
}

// The kernel marks no guards in locked memory.
TEST_F(HibernateTest, GuardOfASleeper_ComesBackInLockedMemory) {
  if (!GuardsAreMarks()) GTEST_SKIP() << "guards are mappings here";
  RunWith(2, [] {
    bool locked = false;
    EXPECT_EQ(
        RunAsleep(64, 0,
                  [&] { locked = mlockall(MCL_CURRENT | MCL_ONFAULT) == 0; }),
        64);
    if (locked) munlockall();
  });
}

TEST_F(HibernateTest, Kernel_FillsABufferOnTheStackOfASleeper) {
  RunWith(2, [] {
    const Hibernating on;
    chan<char*> out = make_chan<char*>();
    chan<void> wake = make_chan<void>();
    sync::WaitGroup done;
    std::string got;
    done.Go([&] {
      char buffer[6] = {};
      out.Send(buffer);
      wake.Recv();
      got = buffer;
    });
    char* buffer = *out.Recv();
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    // The reader is in the kernel, with the buffer, before the owner sleeps.
    std::thread reader([&] { EXPECT_EQ(read(fds[0], buffer, 5), 5); });
    ASSERT_TRUE(AwaitAway(buffer));
    ASSERT_EQ(write(fds[1], "hello", 5), 5);
    reader.join();
    wake.Send();
    done.Wait();
    EXPECT_EQ(got, "hello");
    close(fds[0]);
    close(fds[1]);
  });
}

[[gnu::noinline]] void WaitInAFunctionOfThisName(
    const chan<void>& gate, const chan<const volatile int*>& out) {
  const volatile int local = 0;
  out.Send(&local);
  gate.Recv();
  asm volatile("" : : : "memory");
}

TEST_F(HibernateTest, Dump_ShowsTheFramesOfASleeper) {
  RunWith(2, [] {
    const Hibernating on;
    chan<void> gate = make_chan<void>();
    sync::WaitGroup done;
    auto out = make_chan<const volatile int*>();
    done.Go([&] { WaitInAFunctionOfThisName(gate, out); });
    const volatile int* local = *out.Recv();
    for (int i = 0; i < 20; i++) {
      ASSERT_TRUE(AwaitAway(local));
      const std::string dump = runtime::Stack(/*all=*/true);
      ASSERT_NE(dump.find("WaitInAFunctionOfThisName"), dump.npos) << dump;
    }
    gate.Close();
    done.Wait();
  });
}

TEST_F(HibernateTest, ChildOfFork_ReadsTheStackOfASleeper) {
  RunWith(2, [] {
    const Hibernating on;
    chan<volatile int*> out = make_chan<volatile int*>();
    chan<void> wake = make_chan<void>();
    sync::WaitGroup done;
    done.Go([&] {
      volatile int value = 42;
      out.Send(&value);
      wake.Recv();
    });
    volatile int* value = *out.Recv();
    for (int i = 0; i < 10; i++) {
      ASSERT_TRUE(AwaitAway(value));
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) _exit(*value);
      int status = 0;
      ASSERT_EQ(waitpid(pid, &status, 0), pid);
      ASSERT_TRUE(WIFEXITED(status));
      ASSERT_EQ(WEXITSTATUS(status), 42);
      (void)*value;  // so that it can sleep again
    }
    wake.Send();
    done.Wait();
  });
}

// A handler may interrupt the thread that takes this very stack away, or that
// brings it back.
volatile int* touched = nullptr;

TEST_F(HibernateTest, HandlerOfTheProgram_MayTouchTheStackOfASleeper) {
  struct sigaction touch = {};
  struct sigaction before;
  touch.sa_handler = [](int) { *touched = *touched + 1; };
  touch.sa_flags = SA_ONSTACK | SA_RESTART;
  RunWith(2, [&] {
    const Hibernating on;
    chan<void> ready = make_chan<void>();
    chan<void> wake = make_chan<void>();
    sync::WaitGroup done;
    done.Go([&] {
      volatile int value = 0;
      touched = &value;
      ready.Send();
      while (wake.Recv()) {
      }
    });
    (void)ready.Recv();
    ASSERT_EQ(sigaction(SIGUSR1, &touch, &before), 0);
    std::atomic<bool> stop = false;
    std::thread storm([&] {
      const pid_t self = gettid();
      while (!stop) {
        for (const auto& task :
             std::filesystem::directory_iterator("/proc/self/task")) {
          const pid_t tid = std::stoi(task.path().filename().string());
          if (tid != self) syscall(SYS_tgkill, getpid(), tid, SIGUSR1);
        }
      }
    });
    for (int i = 0; i < 200; i++) {
      time::Sleep(absl::Milliseconds(3));
      wake.Send();
    }
    stop = true;
    blocking([&] { storm.join(); });
    // A signal may still be pending at a thread that blocks it. To ignore a
    // signal drops it there, too.
    touch.sa_handler = SIG_IGN;
    sigaction(SIGUSR1, &touch, nullptr);
    sigaction(SIGUSR1, &before, nullptr);
    wake.Close();
    done.Wait();
  });
}

// No pass runs after main has ended, so sysmon need not look for its end.
TEST_F(HibernateTest, ProcessAfterMain_IsIdle) {
  Hibernating on;
  RunWith(2, [] { time::Sleep(absl::Milliseconds(20)); });
  const auto used = [] {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return absl::DurationFromTimespec(t);
  };
  const absl::Duration start = used();
  absl::SleepFor(absl::Milliseconds(400));
  EXPECT_LT(used() - start, absl::Milliseconds(100));
}

TEST_F(HibernateTest, GoroutinesInDoubt_KeepTheirPages) {
  RunWith(2, [] {
    chan<void> gate = make_chan<void>();
    sync::WaitGroup done;
    auto out = make_chan<const volatile int*>();
    done.Go([&] {
      runtime::LockOSThread();
      volatile int local = 0;
      out.Send(&local);
      gate.Recv();
      runtime::UnlockOSThread();
    });
    done.Go([&] {
      std::array<uint64_t, 512> much;  // more than 2 KiB of live stack
      much.fill(1);
      asm volatile("" : : "r"(&much) : "memory");
      volatile int local = 0;
      out.Send(&local);
      gate.Recv();
      asm volatile("" : : "r"(&much) : "memory");
    });
    const volatile int* first = *out.Recv();
    const volatile int* second = *out.Recv();
    const Hibernating on;
    // A goroutine that began to wait later sleeps, and sleeps again after a
    // fault. So two passes have found the first two old enough.
    done.Go([&] {
      volatile int local = 0;
      out.Send(&local);
      gate.Recv();
    });
    const volatile int* other = *out.Recv();
    for (int i = 0; i < 2; i++) {
      ASSERT_TRUE(AwaitAway(other));
      EXPECT_FALSE(IsAway(first));
      EXPECT_FALSE(IsAway(second));
      (void)*other;
    }
    gate.Close();
    done.Wait();
  });
}

TEST_F(HibernateTest, Off_NoGoroutineSleeps) {
  RunWith(2, [] {
    EXPECT_EQ(debug::SetHibernation(absl::ZeroDuration()),
              absl::ZeroDuration());
    chan<void> gate = make_chan<void>();
    sync::WaitGroup done;
    done.Go([&] { gate.Recv(); });
    const uint64_t slept = Hibernated();
    time::Sleep(absl::Milliseconds(20));
    EXPECT_EQ(Hibernated(), slept);
    gate.Close();
    done.Wait();
  });
}

// ---- All at once ------------------------------------------------------------

// Crowd is a crowd of goroutines that park in several ways, again and again.
// Each has a pattern on its stack, and a counter that other goroutines raise
// while it sleeps.
class Crowd {
 public:
  static constexpr int kN = 240;

  Crowd() {
    for (int i = 0; i < kN; i++) done_.Go([this, i] { Live(i); });
  }
  // Stir wakes some of them, and raises the counter of one.
  void Stir(uint64_t random) {
    switch (random % 4) {
      case 0:
        (void)c_.TrySend(1);
        break;
      case 1: {
        const std::lock_guard l(mu_);
        changed_.Signal();
        break;
      }
      default:
        break;
    }
    std::atomic<uint64_t>* counter =
        counters_[static_cast<size_t>(random / 4 % kN)];
    if (counter != nullptr) {
      counter->fetch_add(1);
      raised_++;
    }
  }
  // End ends all, and returns the sum of what the counters have seen.
  [[nodiscard]] uint64_t End() {
    stop_ = true;
    while (left_ != 0) {
      (void)c_.TrySend(1);
      {
        const std::lock_guard l(mu_);
        changed_.Broadcast();
      }
      runtime::Gosched();
    }
    ended_.Close();
    done_.Wait();
    return seen_;
  }
  uint64_t Raised() const { return raised_; }
  int Damaged() const { return damaged_; }

 private:
  void Live(int i) {
    std::atomic<uint64_t> counter = 0;
    counters_[static_cast<size_t>(i)] = &counter;
    std::array<uint64_t, kWords> words;
    for (uint64_t turn = 0; !stop_; turn++) {
      Fill(&words, turn);
      Park(i);
      damaged_ += Intact(&words, turn) ? 0 : 1;
    }
    left_--;
    ended_.Recv();
    seen_ += counter;
  }
  void Park(int i) {
    switch (i % 4) {
      case 0:
        (void)c_.Recv();
        break;
      case 1: {
        const std::lock_guard l(mu_);
        changed_.Wait();
        break;
      }
      case 2:
        select(Recv(c_), Recv(never_));
        break;
      default:
        time::Sleep(absl::Milliseconds(1 + i % 7));
        break;
    }
  }

  sync::WaitGroup done_;
  chan<int> c_ = make_chan<int>();
  chan<int> never_ = make_chan<int>();
  chan<void> ended_ = make_chan<void>();
  sync::Mutex mu_;
  sync::Cond changed_{mu_};
  std::array<std::atomic<std::atomic<uint64_t>*>, kN> counters_ = {};
  std::atomic<bool> stop_ = false;
  std::atomic<int> left_ = kN;
  std::atomic<int> damaged_ = 0;
  std::atomic<uint64_t> raised_ = 0;
  std::atomic<uint64_t> seen_ = 0;
};

TEST_F(HibernateTest, CrowdOfSleepers_LosesNothingUnderDumpsStopsAndForks) {
  RunWith(2, [] {
    const Hibernating on;
    Crowd crowd;
    std::atomic<bool> stop = false;
    sync::WaitGroup others;
    for (uint64_t k = 0; k < 2; k++) {
      others.Go([&, k] {
        testing::Rng rng(testing::StressSeed() + k);
        while (!stop) {
          crowd.Stir(rng.Next());
          if (rng.OneIn(8)) time::Sleep(absl::Microseconds(rng.Below(2000)));
        }
      });
    }
    others.Go([&] {
      testing::Rng rng(testing::StressSeed());
      while (!stop) {
        switch (rng.Below(4)) {
          case 0:
            (void)runtime::Stack(/*all=*/true);
            break;
          case 1:
            (void)runtime::GOMAXPROCS(1 + static_cast<int>(rng.Below(3)));
            break;
          case 2:
            runtime::GC();
            break;
          default: {
            const pid_t pid = fork();
            if (pid == 0) _exit(0);
            int status = 0;
            EXPECT_EQ(waitpid(pid, &status, 0), pid);
            break;
          }
        }
        time::Sleep(absl::Milliseconds(1));
      }
    });
    const uint64_t slept = Hibernated();
    const int64_t until =
        absl::GetCurrentTimeNanos() + testing::StressTime(1).count();
    while (absl::GetCurrentTimeNanos() < until) {
      time::Sleep(absl::Milliseconds(5));
    }
    EXPECT_TRUE(Eventually([&] { return Hibernated() > slept + 100; }));
    stop = true;
    others.Wait();
    (void)runtime::GOMAXPROCS(2);
    EXPECT_EQ(crowd.End(), crowd.Raised());
    EXPECT_EQ(crowd.Damaged(), 0);
  });
}

}  // namespace
}  // namespace gump
