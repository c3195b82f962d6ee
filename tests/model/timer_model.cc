// Timers (runtime/sched/time.cc, timechan.cc): a heap that one thread looks at
// while other threads stop and reset its timers.
#include "gump/internal/linkname.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sys/os_linux.h"
#include "runtime/wait/timechan.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

constexpr int64_t kDue = 1'000'001'000;  // 1 µs after the beginning
constexpr int64_t kLater = 1'000'002'000;

rt::Timers ts;
rt::Timer timers[3];
rt::Atomic<int> fired[3];
rt::Note goneOn;
bool stopped;
int resets;

void setTimer(int i, int64_t when) {
  rt::Timer* t = &timers[i];
  t->f = [](void* arg, uint64_t, int64_t) {
    static_cast<rt::Atomic<int>*>(arg)->add(1, rt::relaxed);
  };
  t->arg = &fired[i];
  t->when = when;
}

// The functions here require m.locks > 0.
class Acquired {
 public:
  Acquired() : mp_(rt::acquirem()) {}
  ~Acquired() { rt::releasem(mp_); }

 private:
  rt::M* const mp_;
};

void look() {
  const Acquired a;
  int64_t now = 0;
  (void)rt::timersCheck(&ts, &now, /*tidy=*/true);
}

// A thread that would sleep until the earliest time in the heap knows that time
// (T4).
void sleepUntilDue() {
  const int64_t when = rt::wakeTime(&ts);
  if (when == 0) return;
  const int64_t now = rt::nanotime();
  if (when > now) rt::usleep(static_cast<uint32_t>((when - now + 999) / 1000));
  look();
}

const Registered kStop({
    .name = "timer_stop",
    .about = "timerStop against the owner of the heap: fires, or is stopped",
    .setup =
        [] {
          setTimer(0, kDue);
          setTimer(1, kDue);
          (void)rt::timerAdd(&ts, &timers[0]);
          (void)rt::timerAdd(&ts, &timers[1]);
          plainThread("owner", [] {
            rt::usleep(1);
            look();
            sleepUntilDue();
          });
          plainThread("stopper", [] {
            const Acquired a;
            stopped = rt::timerStop(&timers[0]);
          });
        },
    .finish =
        [] {
          check(fired[0].load(rt::relaxed) == (stopped ? 0 : 1),
                "a timer that was stopped has fired, or one that was not has "
                "not");
          check(fired[1].load(rt::relaxed) == 1, "the other one has not fired");
        },
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

const Registered kReset({
    .name = "timer_reset",
    .about = "timerModify to an earlier and a later time: once each",
    .setup =
        [] {
          setTimer(0, kLater);
          setTimer(1, kDue);
          (void)rt::timerAdd(&ts, &timers[0]);
          (void)rt::timerAdd(&ts, &timers[1]);
          ts.id = -1;
          plainThread("owner", [] {
            sleepUntilDue();
            look();
            rt::notesleep(&goneOn);
            sleepUntilDue();
            sleepUntilDue();
          });
          plainThread("user", [] {
            {
              const Acquired a;
              // Returns false if it has fired. Then it will fire again.
              resets += rt::timerModify(&timers[0], kDue - 500, 0) ? 0 : 1;
              resets += rt::timerModify(&timers[0], kLater, 0) ? 0 : 1;
            }
            rt::notewakeup(&goneOn);
          });
        },
    .finish =
        [] {
          // A timer that has fired is added to the heap of P 0.
          rt::Timers* other = &rt::allp[0]->timers;
          const int pending = timers[0].ts == other ? 1 : 0;
          check(fired[0].load(rt::relaxed) + pending == 1 + resets,
                "a timer has fired too often, or not");
          check(fired[1].load(rt::relaxed) == 1, "the other one has not fired");
        },
    .quick = {2, 1, 500},
});

// (T4) holds at every step of the owner. Two timers become earlier, and the
// first is due at once.
const Registered kWakeTime({
    .name = "timer_wake_time",
    .about = "the heap's wake time, while two timers are made earlier",
    .setup =
        [] {
          // If the first two are not noticed to be earlier, the third is due
          // first.
          for (int i = 0; i < 3; i++) {
            setTimer(i, i == 2 ? kLater + 1000 : kLater + 2000);
            (void)rt::timerAdd(&ts, &timers[i]);
          }
          plainThread("owner", [] {
            rt::usleep(1);
            look();
          });
          plainThread("user", [] {
            const Acquired a;
            (void)rt::timerModify(&timers[choose(2)], kDue - 500, 0);
            (void)rt::timerModify(&timers[0], kLater, 0);
          });
        },
    .finish =
        [] {
          const int64_t wake = rt::wakeTime(&ts);
          for (const rt::Timer& t : timers) {
            if (t.ts != &ts || t.when == 0) continue;
            check(wake != 0 && wake <= t.when, "the heap wakes too late");
          }
        },
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

const Registered kThief({
    .name = "timer_thief",
    .about = "two threads run the timers of one heap, and one stops a timer",
    .setup =
        [] {
          setTimer(0, kDue);
          setTimer(1, kDue);
          (void)rt::timerAdd(&ts, &timers[0]);
          (void)rt::timerAdd(&ts, &timers[1]);
          for (const char* t : {"owner", "thief"}) {
            plainThread(t, [] {
              rt::usleep(1);
              look();
            });
          }
          plainThread("stopper", [] {
            const Acquired a;
            stopped = rt::timerStop(&timers[0]);
          });
        },
    .finish =
        [] {
          check(fired[0].load(rt::relaxed) == (stopped ? 0 : 1), "timer 0");
          check(fired[1].load(rt::relaxed) == 1, "timer 1");
        },
});

// ---- A channel of time ------------------------------------------------------

rt::Hchan* c;
int values;

void encode(void* elem, int64_t when) { *static_cast<int64_t*>(elem) = when; }
constexpr rt::ElemType kTime = {sizeof(int64_t), alignof(int64_t)};

const Registered kChan({
    .name = "timer_chan",
    .about = "a channel of time: either the value or one Stop says true",
    .setup =
        [] {
          onPlainThread([] {
            c = rt::newTimerChan(&kTime, encode);
            (void)rt::timerChanReset(c, 1000, 0);
          });
          plainThread("recv", [] {
            int64_t v = 0;
            rt::usleep(1);
            if (rt::chanrecv(c, &v, false) == rt::ChanResult::kOk) values++;
          });
          plainThread("stop", [] {
            rt::usleep(1);
            stopped = rt::timerChanStop(c);
          });
        },
    .finish =
        [] {
          check(values + (stopped ? 1 : 0) == 1,
                "both the value and the Stop, or neither");
        },
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

// The two clocks are read one after the other. A tick is longer than the time
// between the two reads.
constexpr int64_t kTick = 100'000;  // ns

const Registered kTicks({
    .name = "timer_ticks",
    .about = "two threads find a ticker due: the times that it sends only grow",
    .setup =
        [] {
          onPlainThread([] {
            c = rt::newTimerChan(&kTime, encode);
            (void)rt::timerChanReset(c, kTick, kTick);
          });
          plainThread("finder", [] {
            rt::usleep(kTick / 1000);
            const Acquired a;
            rt::timerRunIfDue(&rt::timerChanOf(c)->t);
          });
          plainThread("recv", [] {
            int64_t last = 0;
            for (int64_t ticks : {2, 1, 1}) {
              rt::usleep(static_cast<uint32_t>(ticks * kTick / 1000));
              int64_t v = 0;
              if (rt::chanrecv(c, &v, false) != rt::ChanResult::kOk) continue;
              check(v > last, "an earlier tick after a later one");
              last = v;
            }
          });
        },
    .finish = [] {},
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

}  // namespace
}  // namespace gump::model
