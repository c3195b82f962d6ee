// The goroutineleak profile: what it reports, and above all what it must not
// report. gotest/goroutineleak_test has the rate at which it finds leaks.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/internal/linkname_pprof.h"
#include "gump/pprof.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/cond.h"
#include "gump/sync/mutex.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/parked.h"
#include "tests/testing/profile_reader.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Eventually;
using testing::Profile;

std::string Written(int debug) {
  const testing::TempFile file;
  const absl::Status written =
      pprof::WriteProfile("goroutineleak", file.fd(), debug);
  EXPECT_TRUE(written.ok()) << written;
  return file.Read();
}

// A Test gives each goroutine that it starts a label of its own, because the
// leaks of earlier tests stay.
class LeakTest : public testing::WithGomaxprocs {
 protected:
  void SetUp() override {
    if (rt::sanitizerKeepsAddresses()) {
      GTEST_SKIP() << "no profile goroutineleak with ThreadSanitizer";
    }
    static int tests = 0;
    label_ = std::to_string(++tests);
  }

  // Start runs f in a goroutine that has the label.
  template <class F>
  void Start(F f) {
    pprof::Do(context::Background(), {{"test", label_}},
              [&](const context::Context&) { go(std::move(f)); });
  }
  // Leaks counts the reported goroutines with the label.
  int64_t Leaks(const char* leak = nullptr) const {
    std::map<std::string, std::string> labels{{"test", label_}};
    if (leak != nullptr) labels["leak"] = leak;
    const Profile p = testing::ReadProfile(Written(0));
    EXPECT_EQ(p.error, "");
    return p.Sum("", 0, labels);
  }
  // Waiting returns true if n goroutines with the label wait for `reason`.
  bool Waiting(const std::string& reason, size_t n = 1) const {
    return Eventually([&] {
      const std::string dump = runtime::Stack(true);
      const std::string header = "[" + reason + "] {test: " + label_ + "}:";
      size_t found = 0;
      for (size_t at = 0; (at = dump.find(header, at)) != std::string::npos;
           at++) {
        found++;
      }
      return found == n;
    });
  }
  // ReceiverOf starts a goroutine that receives from c, which alone has another
  // handle, in its closure.
  void ReceiverOf(const chan<int>& c) {
    Start([c] { c.Recv(); });
    EXPECT_TRUE(Waiting("chan receive"));
  }
  // End lets the receiver end.
  void End(const chan<int>& c) {
    c.Close();
    EXPECT_TRUE(Waiting("chan receive", 0));
  }

 private:
  std::string label_;
};
GUMP_INSTANTIATE_GOMAXPROCS(LeakTest);

// ---- What is a leak

// A stale word may hide a leak. So tests of what is found have this many leaks,
// of which most must be found.
constexpr size_t kMany = 20;
constexpr int64_t kMost = 12;

// Abandon starts receivers and forgets their channels. It runs in a goroutine
// that ends, so that no stack has the handles afterwards.
void Abandon() {
  for (size_t i = 0; i < kMany; i++) {
    go([] {
      const chan<int> c = make_chan<int>();
      go([c] { c.Recv(); });
    });
  }
}

TEST_P(LeakTest, GoroutinesThatNothingCanWakeAreFound) {
  Run([this] {
    EXPECT_EQ(Leaks(), 0);
    Start(Abandon);
    ASSERT_TRUE(Waiting("chan receive", kMany));
    // A thread may still be on its way to sleep.
    EXPECT_TRUE(Eventually([this] { return Leaks() >= kMost; }));
    EXPECT_EQ(Leaks("certain"), 0);  // nor is any of them
    for (int i = 0; i < 2; i++) EXPECT_GE(Leaks(), kMost);  // all, each time
  });
}

// A goroutine begins without values of the one before in its registers. Such a
// value once led from each receiver to the stack of another one, so a live
// receiver made all of them live.
TEST_P(LeakTest, ALiveReceiverHidesNoOthers) {
  Run([this] {
    std::array<chan<int>, kMany / 5> live;
    Start([&live] {
      for (size_t i = 0; i < kMany; i++) {
        go([&live, i] {
          const chan<int> c = make_chan<int>();
          if (i % 5 == 0) live[i / 5] = c;
          go([c] { c.Recv(); });
        });
      }
    });
    ASSERT_TRUE(Waiting("chan receive", kMany));
    EXPECT_TRUE(Eventually([this] { return Leaks() >= kMost; }));
    for (const chan<int>& c : live) c.Close();
  });
}

TEST_P(LeakTest, LeaksBesideAPlainThreadAreFound) {
  Run([this] {
    std::array<int, 2> ends;
    ASSERT_EQ(pipe(ends.data()), 0);
    std::thread plain([&] {
      char b;
      EXPECT_EQ(read(ends[0], &b, 1), 0);
    });
    Start(Abandon);
    ASSERT_TRUE(Waiting("chan receive", kMany));
    // Until the thread sleeps, its heap may be in a state that cannot be read.
    EXPECT_TRUE(Eventually([this] { return Leaks("suspected") >= kMost; }));
    EXPECT_EQ(Leaks("certain"), 0);
    close(ends[1]);
    plain.join();
    close(ends[0]);
  });
}

TEST_P(LeakTest, TextsMarkLeaks) {
  Run([this] {
    Start([] { select(); });
    ASSERT_TRUE(Waiting("select (no cases)"));
    const std::string text = Written(1);
    EXPECT_EQ(text.find("goroutineleak profile: total "), 0u) << text;
    EXPECT_NE(text.find("# labels: {\"leak\":\"certain\", \"test\":\""),
              std::string::npos)
        << text;
    const std::string dump = Written(2);
    EXPECT_EQ(dump.find("goroutine 1 [running"), 0u) << dump;
    EXPECT_NE(dump.find(" [select (no cases) (leaked)] {test: "),
              std::string::npos)
        << dump;
    // Other dumps do not search.
    EXPECT_EQ(runtime::Stack(true).find("leaked"), std::string::npos);
  });
}

TEST_P(LeakTest, ProfilesAtTheSameTimeAreComplete) {
  Run([this] {
    Start([] { chan<int>().Send(1); });
    Start([] { chan<int>().Recv(); });
    ASSERT_TRUE(Waiting("chan send (nil chan)"));
    ASSERT_TRUE(Waiting("chan receive (nil chan)"));
    sync::WaitGroup wg;
    std::atomic<int> whole = 0;
    for (int i = 0; i < 4; i++) {
      wg.Go([&] {
        for (int k = 0; k < 3; k++) whole += Leaks() == 2 ? 1 : 0;
      });
    }
    wg.Wait();
    EXPECT_EQ(whole, 12);
  });
}

// ---- What is none

TEST_P(LeakTest, HandleOfARunningGoroutinePreventsALeak) {
  Run([this] {
    const chan<int> c = make_chan<int>();
    ReceiverOf(c);
    EXPECT_EQ(Leaks(), 0);
    End(c);
  });
}

TEST_P(LeakTest, HandleInTheHeapOfARunningGoroutinePreventsALeak) {
  Run([this] {
    auto state = std::make_unique<std::vector<chan<int>>>();
    state->push_back(make_chan<int>());
    ReceiverOf(state->front());
    EXPECT_EQ(Leaks(), 0);
    End(state->front());
  });
}

TEST_P(LeakTest, HandleOfARunnableGoroutinePreventsALeak) {
  Run([this] {
    std::atomic<bool> stop = false;
    sync::WaitGroup wg;
    {
      const chan<int> c = make_chan<int>();
      wg.Go([c, &stop] {
        while (!stop) runtime::Gosched();
        c.Close();
      });
      ReceiverOf(c);
    }
    EXPECT_EQ(Leaks(), 0);
    stop = true;
    wg.Wait();
    EXPECT_TRUE(Waiting("chan receive", 0));
  });
}

TEST_P(LeakTest, HandleOfAComputingGoroutinePreventsALeak) {
  Run([this] {
    std::atomic<bool> stop = false, computes = false;
    sync::WaitGroup wg;
    {
      const chan<int> c = make_chan<int>();
      wg.Go([c, &stop, &computes] {
        computes = true;
        while (!stop) {  // does not enter the runtime
        }
        c.Close();
      });
      ReceiverOf(c);
    }
    EXPECT_TRUE(Eventually([&] { return computes.load(); }));
    EXPECT_EQ(Leaks(), 0);
    stop = true;
    wg.Wait();
    EXPECT_TRUE(Waiting("chan receive", 0));
  });
}

TEST_P(LeakTest, HandleOfASleepingGoroutinePreventsALeak) {
  Run([this] {
    auto [ctx, cancel] = context::WithCancel(context::Background());
    sync::WaitGroup wg;
    {
      const chan<int> c = make_chan<int>();
      wg.Go([c, ctx = ctx] {
        select(Recv(ctx.Done()), Recv(time::After(absl::Hours(1))));
        c.Close();
      });
      ReceiverOf(c);
    }
    EXPECT_EQ(Leaks(), 0);
    cancel();
    wg.Wait();
    EXPECT_TRUE(Waiting("chan receive", 0));
  });
}

TEST_P(LeakTest, HandleInADeclaredCallPreventsALeak) {
  Run([this] {
    std::array<int, 2> ends;
    ASSERT_EQ(pipe(ends.data()), 0);
    sync::WaitGroup wg;
    {
      const chan<int> c = make_chan<int>();
      wg.Go([c, fd = ends[0]] {
        char b;
        blocking([&] { return ::read(fd, &b, 1); });
        c.Close();
      });
      ReceiverOf(c);
    }
    EXPECT_EQ(Leaks(), 0);
    close(ends[1]);
    wg.Wait();
    EXPECT_TRUE(Waiting("chan receive", 0));
    close(ends[0]);
  });
}

TEST_P(LeakTest, HandleOfAPlainThreadPreventsALeak) {
  Run([this] {
    std::array<int, 2> ends;
    ASSERT_EQ(pipe(ends.data()), 0);
    std::thread plain;
    {
      const chan<int> c = make_chan<int>();
      ReceiverOf(c);
      plain = std::thread([c, fd = ends[0]] {
        char b;
        EXPECT_EQ(read(fd, &b, 1), 0);
        c.Close();
      });
    }
    EXPECT_EQ(Leaks(), 0);
    close(ends[1]);
    plain.join();
    close(ends[0]);
    EXPECT_TRUE(Waiting("chan receive", 0));
  });
}

std::vector<chan<int>>& Global() {
  static std::vector<chan<int>> all;
  return all;
}

TEST_P(LeakTest, HandleInAGlobalPreventsALeak) {
  Run([this] {
    for (size_t i = 0; i < kMany; i++) Global().push_back(make_chan<int>());
    for (const chan<int>& c : Global()) {
      Start([c] { c.Recv(); });
    }
    ASSERT_TRUE(Waiting("chan receive", kMany));
    EXPECT_EQ(Leaks(), 0);
    for (const chan<int>& c : Global()) c.Close();
    EXPECT_TRUE(Waiting("chan receive", 0));
    Global().clear();
  });
}

TEST_P(LeakTest, HandleInMappedMemoryPreventsALeak) {
  Run([this] {
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    auto* c = new (page) chan<int>(make_chan<int>());
    ReceiverOf(*c);
    ASSERT_EQ(mprotect(page, 4096, PROT_READ), 0);
    EXPECT_EQ(Leaks(), 0);
    ASSERT_EQ(mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);
    End(*c);
    c->~chan<int>();
    munmap(page, 4096);
  });
}

TEST_P(LeakTest, HandleOfAPendingTimerPreventsALeak) {
  Run([this] {
    time::Timer timer;
    {
      const chan<int> c = make_chan<int>();
      timer = time::AfterFunc(absl::Hours(1), [c] { c.Close(); });
      ReceiverOf(c);
    }
    EXPECT_EQ(Leaks(), 0);
    timer.Reset(absl::ZeroDuration());
    EXPECT_TRUE(Waiting("chan receive", 0));
  });
}

TEST_P(LeakTest, WaitWithATimeLimitIsNoLeak) {
  Run([this] {
    Start([] { time::After(absl::Hours(1)).Recv(); });
    Start([] {
      sync::Mutex mu;
      sync::Cond cond(mu);
      mu.Lock();
      (void)cond.WaitFor(absl::Hours(1));
      mu.Unlock();
    });
    Start([] { time::Sleep(absl::Hours(1)); });
    ASSERT_TRUE(Waiting("chan receive"));
    ASSERT_TRUE(Waiting("sync.Cond.Wait"));
    ASSERT_TRUE(Waiting("sleep"));
    EXPECT_EQ(Leaks(), 0);
  });
}

TEST_P(LeakTest, HandleInAReachableBufferPreventsALeak) {
  Run([this] {
    const chan<chan<int>> box = make_chan<chan<int>>(1);
    box.Send(make_chan<int>());
    Start([box] {
      const chan<int> c = *box.Recv();
      box.Send(c);
      c.Recv();
    });
    ASSERT_TRUE(Waiting("chan receive"));
    EXPECT_EQ(Leaks(), 0);
    box.Recv()->Close();
    EXPECT_TRUE(Waiting("chan receive", 0));
  });
}

TEST_P(LeakTest, ReachableCaseOfASelectPreventsALeak) {
  Run([this] {
    const chan<int> c = make_chan<int>();
    Start([c] {
      const chan<int> other = make_chan<int>();
      select(Recv(other), Send(other, 1), Recv(c));
    });
    ASSERT_TRUE(Waiting("select"));
    EXPECT_EQ(Leaks(), 0);
    c.Close();
    EXPECT_TRUE(Waiting("select", 0));
  });
}

TEST_P(LeakTest, HandleByReferencePreventsALeak) {
  Run([this] {
    const chan<int> c = make_chan<int>();
    Start([&c] { c.Recv(); });
    ASSERT_TRUE(Waiting("chan receive"));
    EXPECT_EQ(Leaks(), 0);
    End(c);
  });
}

// The goroutine that waits is leaked only if its waker is: here a chain of
// goroutines, the last of which a runnable one can wake.
TEST_P(LeakTest, ChainFromARunnableGoroutineIsNoLeak) {
  Run([this] {
    constexpr size_t kLength = 10;
    const chan<int> first = make_chan<int>();
    chan<int> from = first;
    for (size_t i = 0; i < kLength; i++) {
      const chan<int> to = make_chan<int>(1);
      Start([from, to] { to.Send(from.Recv().value_or(0)); });
      from = to;
    }
    from = nullptr;
    ASSERT_TRUE(Waiting("chan receive", kLength));
    EXPECT_EQ(Leaks(), 0);
    first.Close();
    EXPECT_TRUE(Waiting("chan receive", 0));
  });
}

TEST_P(LeakTest, ReachableLocksPreventLeaks) {
  Run([this] {
    struct State {
      sync::Mutex mu;
      sync::Mutex lock;
      sync::Cond cond{mu};
      sync::WaitGroup wg;
    };
    auto state = std::make_shared<State>();
    state->lock.Lock();
    state->wg.Add(1);
    Start([state] {
      state->lock.Lock();
      state->lock.Unlock();
    });
    Start([state] { state->wg.Wait(); });
    Start([state] {
      state->mu.Lock();
      state->cond.Wait();
      state->mu.Unlock();
    });
    ASSERT_TRUE(Waiting("sync.Mutex.Lock"));
    ASSERT_TRUE(Waiting("sync.WaitGroup.Wait"));
    ASSERT_TRUE(Waiting("sync.Cond.Wait"));
    EXPECT_EQ(Leaks(), 0);
    state->lock.Unlock();
    state->wg.Done();
    state->cond.Signal();
    EXPECT_TRUE(Waiting("sync.Mutex.Lock", 0));
    EXPECT_TRUE(Waiting("sync.WaitGroup.Wait", 0));
    EXPECT_TRUE(Waiting("sync.Cond.Wait", 0));
  });
}

// Exits with 0 if the profile has the leak and not the main goroutine.
void MainInSelect() {
  testing::RunWith(2, [] {
    go([] {
      EXPECT_TRUE(testing::EventuallyParked("select (no cases)", 1));
      go([] { chan<int>().Recv(); });
      EXPECT_TRUE(testing::EventuallyParked("chan receive (nil chan)", 1));
      const Profile p = testing::ReadProfile(Written(0));
      _exit(p.samples.size() == 1 && p.Sum("") == 1 ? 0 : 1);
    });
    select();
  });
}

TEST(LeakDeathTest, MainInSelectIsNoLeak) {
  if (rt::sanitizerKeepsAddresses()) {
    GTEST_SKIP() << "no profile goroutineleak with ThreadSanitizer";
  }
  EXPECT_EXIT(MainInSelect(), ::testing::ExitedWithCode(0), "");
}

// ---- Plain threads

// A goroutine that is in a search when main returns goes on with the next Run.
TEST(LeakTurnTest, PlainThreadWaitsForNoSearchOfAnEndedRun) {
  if (rt::sanitizerKeepsAddresses()) {
    GTEST_SKIP() << "no profile goroutineleak with ThreadSanitizer";
  }
  struct Search {
    chan<void> go_on = make_chan<void>();
    std::atomic<bool> stays = false;
    std::atomic<bool> over = false;
  };
  Search search;
  gump::Run([&] {
    go([] { chan<int>().Recv(); });
    EXPECT_TRUE(Eventually(
        [] { return testing::CountParked("chan receive (nil chan)") >= 1; }));
    go([&] {
      const auto stay = [](void* arg, const rt::StackRecord& /*leak*/) {
        auto* s = static_cast<Search*>(arg);
        s->stays = true;
        (void)s->go_on.Recv();
      };
      EXPECT_EQ(rt::visitLeaks(stay, &search), rt::LeakStatus::kDone);
      search.over = true;
    });
    EXPECT_TRUE(Eventually([&] { return search.stays.load(); }));
  });
  EXPECT_EQ(testing::ReadProfile(Written(0)).error, "");
  gump::Run([&] {
    search.go_on.Close();
    EXPECT_TRUE(Eventually([&] { return search.over.load(); }));
  });
}

// ---- Errors

TEST(LeakErrorTest, ThreadSanitizer_ProfileIsUnimplemented) {
  if (!rt::sanitizerKeepsAddresses()) GTEST_SKIP() << "only with it";
  for (const int debug : {0, 1, 2}) {
    const absl::Status s = pprof::WriteProfile("goroutineleak", 1, debug);
    EXPECT_TRUE(absl::IsUnimplemented(s)) << s;
  }
}

TEST(LeakErrorTest, PlainThreadWritesTheProfile) {
  if (rt::sanitizerKeepsAddresses()) {
    GTEST_SKIP() << "no profile goroutineleak with ThreadSanitizer";
  }
  EXPECT_EQ(testing::ReadProfile(Written(0)).error, "");
  EXPECT_EQ(Written(1).find("goroutineleak profile: total "), 0u);
}

}  // namespace
}  // namespace gump
