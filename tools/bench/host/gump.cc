// HOST: what the machine itself allows, without any code of the runtime. These
// figures help to judge how late the runtime is.
//
// HOST/gaps: one thread per processor does nothing but read the clock. We count
// how often a second it finds that more than 1 ms has passed, because another
// program, or the host of a virtual machine, had the processor.
//
// HOST/stop: the least time in which a program with busy threads can stop them.
// We send each thread a signal. Its handler reports that the thread has
// stopped, and sleeps. This is the twin of STOP.
//
// HOST/restart: the same, but timed until every thread has also been told to go
// on. This is the twin of STW. A woken thread may take the processor of the
// thread that wakes it. The waker then continues at the kernel's next tick,
// milliseconds later.
//
// HOST/1ms, HOST/50us: how late a thread wakes that sleeps for that time and
// does nothing else. TIMER/func and TIMER/sleep would be as late if the poller
// did not wake earlier than the timer is due.
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/prctl.h>

#include <atomic>
#include <thread>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

constexpr int64_t kPause = 200'000;  // ns

std::atomic<bool> ended = false;

void Wait(sem_t* s) {
  while (sem_wait(s) != 0) {
  }
}

struct Hog {
  sem_t stopped;
  sem_t let_on;
  std::thread thread;
};
thread_local Hog* self;

void Obey(int) {
  sem_post(&self->stopped);
  Wait(&self->let_on);
}

class Hogs {
 public:
  explicit Hogs(int n) : hogs_(static_cast<size_t>(n)) {
    struct sigaction action = {};
    action.sa_handler = Obey;
    sigaction(SIGUSR1, &action, nullptr);
    for (Hog& h : hogs_) {
      sem_init(&h.stopped, 0, 0);
      sem_init(&h.let_on, 0, 0);
      h.thread = std::thread([&h] {
        self = &h;
        sem_post(&h.stopped);
        while (!ended.load(std::memory_order_relaxed)) {
        }
      });
      Wait(&h.stopped);
    }
  }
  ~Hogs() {
    ended = true;
    for (Hog& h : hogs_) h.thread.join();
  }

  // Stop returns when all hogs are stopped. LetOn lets them run again.
  void Stop() {
    for (Hog& h : hogs_) pthread_kill(h.thread.native_handle(), SIGUSR1);
    for (Hog& h : hogs_) Wait(&h.stopped);
  }
  void LetOn() {
    for (Hog& h : hogs_) sem_post(&h.let_on);
  }

 private:
  std::vector<Hog> hogs_;
};

void Gaps(int reps, int procs, int64_t ns) {
  for (int r = 0; r < reps; r++) {
    std::atomic<int64_t> gaps = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < procs; i++) {
      threads.emplace_back([&] {
        int64_t last = NowNanos();
        for (const int64_t end = last + ns; last < end;) {
          const int64_t now = NowNanos();
          if (now - last > 1'000'000) gaps++;
          last = now;
        }
      });
    }
    for (std::thread& t : threads) t.join();
    Print("HOST/gaps", "per-s",
          static_cast<double>(gaps) * 1e9 / static_cast<double>(ns));
  }
}

void Stops(int reps, int procs, int64_t stops) {
  Hogs hogs(procs);
  for (int r = 0; r < reps; r++) {
    std::vector<int64_t> stop;
    std::vector<int64_t> restart;
    for (int64_t i = 0; i < stops; i++) {
      SleepNanos(kPause);
      const int64_t start = NowNanos();
      hogs.Stop();
      stop.push_back(NowNanos() - start);
      hogs.LetOn();
      restart.push_back(NowNanos() - start);
    }
    PrintQuantiles("HOST/stop", stop);
    PrintQuantiles("HOST/restart", restart);
  }
}

void Sleeps(const Options& o, const char* workload, int64_t ns, int64_t n) {
  if (!o.Selected(workload)) return;
  prctl(PR_SET_TIMERSLACK, 1);
  for (int r = 0; r < o.reps; r++) {
    std::vector<int64_t> late;
    for (int64_t i = 0; i < n; i++) {
      const int64_t due = NowNanos() + ns;
      SleepNanos(ns);
      late.push_back(NowNanos() - due);
    }
    PrintQuantiles(workload, late);
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  const int procs = gump::runtime::GOMAXPROCS(0);
  if (o.Selected("HOST/gaps")) Gaps(o.reps, procs, o.Scaled(2'000'000'000));
  Sleeps(o, "HOST/1ms", 1'000'000, o.Scaled(500));
  Sleeps(o, "HOST/50us", 50'000, o.Scaled(5000));
  if (o.Selected("HOST/stop") || o.Selected("HOST/restart"))
    Stops(o.reps, procs, o.Scaled(1000));
}
