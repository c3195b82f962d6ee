// The program that is refused calls: its work, and its resources when all is
// done. Include it in one file only, as is said of interpose.h.
//
// It makes the runtime use every function that asks the kernel for something.
// FaultProgram in fault_test.cc turns the faults on and off.
#ifndef TESTS_FAULT_PROGRAM_H_
#define TESTS_FAULT_PROGRAM_H_

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/gump.h"
#include "tests/fault/interpose.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {

// ---- Everything -------------------------------------------------------------

// Errors counts and prints the errors that are reported.
struct Errors {
  sync::Mutex mu;
  int n = 0;
  void Add(const char* where, absl::string_view what) {
    mu.Lock();
    n++;
    std::printf("error: %s: %.*s\n", where, static_cast<int>(what.size()),
                what.data());
    mu.Unlock();
  }
  void Check(const char* where, const absl::Status& s) {
    if (!s.ok()) Add(where, s.message());
  }
};

// Guarded calls f and counts its exceptions.
template <class F>
inline void Guarded(Errors* errors, const char* where, F f) {
  try {
    f();
  } catch (const std::exception& e) {
    errors->Add(where, e.what());
  }
}

inline void Spawn(Errors* errors) {
  sync::WaitGroup wg;
  auto c = make_chan<int>();
  int started = 0;
  for (int i = 0; i < 200; i++) {
    Guarded(errors, "go", [&] {
      wg.Go([c, i] { c.Send(i); });
      started++;
    });
  }
  for (int i = 0; i < started; i++) c.Recv();
  for (size_t size : {size_t{1} << 20, size_t{8} << 20}) {
    Guarded(errors, "go, large", [&] {
      auto done = make_chan<void>();
      go(GoOptions{.stack_size = size, .name = "large"},
         [done] { done.Send(); });
      done.Recv();
    });
  }
  wg.Wait();
}

inline void Sleep(Errors* errors) {
  sync::WaitGroup wg;
  for (int i = 0; i < 20; i++) {
    Guarded(errors, "sleep",
            [&] { wg.Go([i] { time::Sleep(absl::Microseconds(i * 50)); }); });
  }
  Guarded(errors, "timer", [&] {
    auto c = make_chan<void>(1);
    auto t = time::AfterFunc(absl::Microseconds(300), [c] { c.Send(); });
    c.Recv();
    time::After(absl::Microseconds(100)).Recv();
  });
  wg.Wait();
}

inline void Threads(Errors* errors) {
  sync::WaitGroup wg;
  for (int i = 0; i < 4; i++) {
    Guarded(errors, "blocking",
            [&] { wg.Go([] { blocking([] { ::usleep(1000); }); }); });
  }
  Guarded(errors, "LockOSThread", [&] {
    wg.Go([] { runtime::LockOSThread(); });  // its thread ends with it
  });
  wg.Wait();
}

inline void Serve(Errors* errors, const net::Listener& listener) {
  auto conn = listener.Accept();
  errors->Check("accept", conn.status());
  if (!conn.ok()) {
    (void)listener.Close();  // the dialer must not wait for us
    return;
  }
  char buf[8];
  auto n = conn->Read(absl::MakeSpan(buf));
  errors->Check("read", n.status());
  if (n.ok()) errors->Check("write", conn->Write({buf, *n}).status());
  (void)conn->Close();
}

inline void Network(Errors* errors) {
  auto listener = net::Listen("tcp", "127.0.0.1:0");
  errors->Check("listen", listener.status());
  if (!listener.ok()) return;
  sync::WaitGroup wg;
  bool serving = false;
  Guarded(errors, "go", [&] {
    wg.Go([&] { Serve(errors, *listener); });
    serving = true;
  });
  if (serving) {
    auto conn = net::Dial("tcp", listener->LocalAddr().String());
    errors->Check("dial", conn.status());
    if (!conn.ok()) (void)listener->Close();  // no client will come
    if (conn.ok()) {
      (void)conn->SetDeadline(absl::Now() + absl::Seconds(30));
      errors->Check("write", conn->Write("hello").status());
      char buf[8];
      auto n = conn->Read(absl::MakeSpan(buf));
      if (n.ok() && *n != 5) errors->Add("read", "cut short");
      errors->Check("read", n.status());
      (void)conn->Close();
    }
  }
  (void)listener->Close();
  wg.Wait();
}

inline void Work(Errors* errors) {
  Spawn(errors);
  Sleep(errors);
  Threads(errors);
  Network(errors);
  Sleep(errors);  // in the poller's back end, now that there is one
  Guarded(errors, "GC", [] { runtime::GC(); });
  (void)runtime::Stack(true);
}

// ---- The end of main --------------------------------------------------------

// Service has the goroutines that are left when main ends. Some accept and read
// from a connection, and Shutdown ends these. The others wait for a channel or
// a time, compute, or make declared calls. They go on in the next Run.
class Service {
 public:
  explicit Service(Errors* errors) : errors_(errors) {
    auto listener = net::Listen("tcp", "127.0.0.1:0");
    errors->Check("listen", listener.status());
    if (!listener.ok()) return;
    listener_ = *listener;
    served_.Go([this] {
      auto conn = listener_->Accept();
      errors_->Check("accept", conn.status());
      if (!conn.ok()) return;
      served_.Go([c = *conn] {
        char buf[8];
        while (c.Read(absl::MakeSpan(buf)).value_or(0) > 0) {
        }
        (void)c.Close();
      });
      if (listener_->Accept().ok()) errors_->Add("accept", "who is that?");
    });
    auto conn = net::Dial("tcp", listener_->LocalAddr().String());
    errors->Check("dial", conn.status());
    if (conn.ok()) conn_ = *conn;
    left_.Go([this] { over_.Recv(); });
    left_.Go([this] {
      while (!is_over_) time::Sleep(absl::Microseconds(100));
    });
    auto computing = make_chan<void>();
    left_.Go([this, computing] {
      computing.Send();
      while (!is_over_) {
      }
    });
    computing.Recv();
    left_.Go([this] {
      while (!is_over_) blocking([] { ::usleep(200); });
    });
  }

  // Shutdown is the last step of main. It needs threads, and a stack of a size
  // that no goroutine has had before. The goroutine that it starts last may
  // begin after the end of main.
  void Shutdown() {
    if (conn_) errors_->Check("close", conn_->Close());
    if (listener_) errors_->Check("close", listener_->Close());
    served_.Wait();
    Guarded(errors_, "go, large", [&] {
      auto done = make_chan<void>();
      go(GoOptions{.stack_size = 32 << 20}, [done] { done.Send(); });
      done.Recv();
    });
    auto bound = make_chan<void>();
    int started = 0;
    for (int i = 0; i < 10; i++) {
      Guarded(errors_, "go, bound", [&] {
        left_.Go([this, bound] {
          runtime::LockOSThread();
          bound.Send();
          over_.Recv();
        });
        started++;
      });
    }
    for (int i = 0; i < started; i++) bound.Recv();
    Guarded(errors_, "go, last", [&] { left_.Go([] {}); });
  }

  // EndLeftovers is for a later Run.
  void EndLeftovers() {
    is_over_ = true;
    over_.Close();
    left_.Wait();
  }

 private:
  Errors* errors_;
  std::optional<net::Listener> listener_;
  std::optional<net::Conn> conn_;
  sync::WaitGroup served_;
  sync::WaitGroup left_;
  chan<void> over_ = make_chan<void>();
  std::atomic<bool> is_over_{false};
};

// ---- More watches than the ring takes ---------------------------------------

// Watch makes the ring begin more watches at a time than its queue holds, 256.
// The ring's thread may take some of them before it is held. Even then either
// these or the others are more than 256.
inline void Watch(Errors* errors) {
  constexpr int kWatches = 600;
  // The ring is there, and its thread in the kernel.
  errors->Check("listen", net::Listen("tcp", "127.0.0.1:0").status());
  // Listen makes this call just before it asks the ring for a watch.
  const Fault& asked =
      *std::find_if(std::begin(faults), std::end(faults), [](const Fault& f) {
        return absl::string_view(f.name) == "epoll_ctl_del";
      });
  const int before = asked.calls.load();
  ringHeld = true;
  sync::WaitGroup wg;
  for (int i = 0; i < kWatches; i++) {
    wg.Go([errors] {
      auto listener = net::Listen("tcp", "127.0.0.1:0");
      errors->Check("listen", listener.status());
      if (listener.ok()) errors->Check("close", listener->Close());
    });
  }
  if (!Eventually([&] { return asked.calls.load() >= before + kWatches; })) {
    errors->Add("watch", "not all have come");
  }
  ringHeld = false;
  wg.Wait();
}

// ---- Its resources ----------------------------------------------------------

// Rest is the resources of a program when nothing goes on.
// GUMP_FAULT_REST=D:G:T:U in the environment limits the four figures below, in
// their order. The program then waits until no figure is above its limit.
struct Rest {
  int descriptors = 0;
  int goroutines = 0;
  int threads = 0;    // that the runtime has and that are not idle
  int uncounted = 0;  // threads that it does not know, or not any more

  bool AtMost(const Rest& r) const {
    return descriptors <= r.descriptors && goroutines <= r.goroutines &&
           threads <= r.threads && uncounted <= r.uncounted;
  }
};

inline int Entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<int>(std::distance(begin(all), end(all)));
}

inline Rest Look() {
  runtime::GC();  // threads that are not needed end
  const debug::SchedStats stats = debug::ReadSchedStats();
  return {Entries("/proc/self/fd"), runtime::NumGoroutine(),
          stats.threads - stats.idle_threads,
          // A thread that is being made is one of ours already.
          std::max(0, Entries("/proc/self/task") - stats.threads)};
}

inline Rest LookUntilAtRest() {
  Rest most;
  const char* text = std::getenv("GUMP_FAULT_REST");
  const bool known =
      text != nullptr &&
      std::sscanf(text, "%d:%d:%d:%d", &most.descriptors, &most.goroutines,
                  &most.threads, &most.uncounted) == 4;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Rest least = Look();
  // Without a bound, look 30 times after all goroutines but main have ended,
  // and take the least of each figure.
  for (int i = 0; known ? !least.AtMost(most) : i < 30; i++) {
    if (!known && least.goroutines > 1) i = 0;
    if (std::chrono::steady_clock::now() > end) break;
    time::Sleep(absl::Milliseconds(1));
    const Rest now = Look();
    least = known ? now
                  : Rest{std::min(least.descriptors, now.descriptors),
                         std::min(least.goroutines, now.goroutines),
                         std::min(least.threads, now.threads),
                         std::min(least.uncounted, now.uncounted)};
  }
  return least;
}

}  // namespace gump::testing

#endif  // TESTS_FAULT_PROGRAM_H_
