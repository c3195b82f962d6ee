// One-shot waits (netpoll/once.cc), between plain threads. epoll.cc is the
// kernel, and one of the threads polls.
#include <poll.h>

#include <cstddef>
#include <cstdint>

#include "netpoll/once.h"
#include "netpoll/polldesc.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/netpoll.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sys/os_linux.h"
#include "tests/model/epoll.h"
#include "tests/model/model.h"
#include "tests/model/sched_kit.h"

namespace gump::model {
namespace {

rt::Atomic<int> waiting;  // waiters that have not come to their end

// The events of each waiter, in the end.
int16_t seen[2];

// look is W1 for one or two descriptors.
template <size_t n>
int look(pollfd (&fds)[n]) {
  return ::poll(fds, n, 0);
}

// await waits without a limit. It does what oncePoll does on a goroutine.
template <size_t n>
void await(pollfd (&fds)[n]) {
  while (look(fds) == 0) {
    const int err = rt::onceWait(fds, n, rt::kMaxWhen);
    check(err == 0 || err == rt::kErrClosing, "onceWait");
  }
}

void waiterEnds() {
  if (waiting.add(-1, rt::acq_rel) == 0) rt::netpollBreak();
}

// waiterFor waits for one event of number 0, and notes what it sees.
template <int i, int events>
void waiterFor() {
  pollfd fds[] = {{0, events, 0}};
  await(fds);
  seen[i] = fds[0].revents;
  waiterEnds();
}

// pollUntilEnd polls as long as there are waiters.
void pollUntilEnd() {
  while (waiting.load(rt::acquire) != 0) {
    const rt::NetpollResult r = rt::netpoll(-1);
    check(r.toRun.empty(), "a plain thread on a queue");
  }
}

// leaveArmed leaves an arming behind, as a wait that has timed out does. The
// first call makes the inner epoll instance.
void leaveArmed() {
  const pollfd fds[] = {{0, POLLIN, 0}};
  check(rt::onceWait(fds, 1, 1) == rt::kErrTimeout, "no timeout");
}

// open makes number 0 name file 0, and number 1 file 1.
void openNumbers(int waiters, void (*poller)() = pollUntilEnd) {
  kernelOpen(0, 0);
  kernelOpen(1, 1);
  onPlainThread(leaveArmed);
  waiting.store(waiters, rt::relaxed);
  plainThread("poller", poller);
}

const Registered kReady({
    .name = "once_ready",
    .about =
        "os::Poll: a descriptor is ready before, during and after the arming",
    .setup =
        [] {
          openNumbers(1);
          plainThread("reader", waiterFor<0, POLLIN>);
          plainThread("kernel", [] { kernelReady(0, POLLIN); });
        },
    .finish = [] { check(seen[0] == POLLIN, "not what the kernel says"); },
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

// The second event comes only when the first has woken its waiter.
const Registered kTwo({
    .name = "once_two",
    .about = "os::Poll: a reader and a writer of one descriptor",
    .setup =
        [] {
          openNumbers(2);
          plainThread("reader", [] {
            waiterFor<0, POLLIN>();
            kernelReady(0, POLLOUT);
          });
          plainThread("writer", waiterFor<1, POLLOUT>);
          plainThread("kernel", [] { kernelReady(0, POLLIN); });
        },
    .finish =
        [] {
          check((seen[0] & POLLIN) != 0, "the reader");
          check((seen[1] & POLLOUT) != 0, "the writer");
        },
    .quick = {1, 1, 500},
    .full = {2, 1, 20000, 1},
});

// closeNumber0 closes number 0 as hooks do.
void closeNumber0(rt::Atomic<int>* closed) {
  const auto call = [](auto f) {
    (void)rt::runtimeEntry();
    rt::M* mp = rt::acquirem();
    f();
    rt::releasem(mp);
  };
  call([] { rt::onceClosing(0); });
  kernelClose(0);
  if (closed != nullptr) closed->store(1, rt::relaxed);
  call([] { rt::onceClosed(0, /*gone=*/true); });
}

const Registered kClose({
    .name = "once_close",
    .about = "os::Poll: a descriptor is closed, and onceClosed is called",
    .setup =
        [] {
          openNumbers(1);
          plainThread("reader", waiterFor<0, POLLIN>);
          plainThread("closer", [] { closeNumber0(/*closed=*/nullptr); });
        },
    .finish = [] { check(seen[0] == POLLNVAL, "not woken by the close"); },
    .quick = {2, 1, 500},
    .full = {3, 1, 20000},
});

rt::Atomic<int> isClosed;

// The number is used again before the closer has called onceClosed.
const Registered kReopen({
    .name = "once_reopen",
    .about = "os::Poll: a close is not told to a waiter of the number's next "
             "file",
    .setup =
        [] {
          openNumbers(2);
          plainThread("reader", waiterFor<0, POLLIN>);
          plainThread("closer", [] { closeNumber0(&isClosed); });
          plainThread("opener", [] {
            if (isClosed.load(rt::relaxed) == 1) {
              kernelOpen(0, 1);
              pollfd fds[] = {{0, POLLIN, 0}};
              while (look(fds) == 0) {
                check(rt::onceWait(fds, 1, rt::kMaxWhen) == 0,
                      "told of a close that was before");
              }
            }
            waiterEnds();
          });
          plainThread("kernel", [] {
            kernelReady(0, POLLIN);
            kernelReady(1, POLLIN);
          });
        },
    .quick = {1, 1, 500},
    .full = {2, 1, 20000, 1},
});

// Unseen: no thread calls onceClosed. A duplicate keeps the file.
const Registered kUnseen({
    .name = "once_unseen",
    .about =
        "os::Poll: a descriptor with a duplicate is closed unseen, and ready",
    .setup =
        [] {
          openNumbers(2);
          plainThread("reader", waiterFor<0, POLLIN>);
          plainThread("writer", waiterFor<1, POLLOUT>);
          plainThread("kernel", [] {
            kernelClose(0);
            kernelReady(0, POLLIN);
            kernelReady(0, POLLOUT);
          });
        },
    .quick = {1, 1, 500},
    .full = {2, 1, 20000, 1},
});

rt::Atomic<int> newReady;

// Number 0 was used for file 0, and is used for file 1 now.
const Registered kReuse({
    .name = "once_reuse",
    .about = "os::Poll: an event of the number's old file wakes no waiter",
    .setup =
        [] {
          openNumbers(1);
          kernelOpen(0, 1);
          plainThread("reader", [] {
            pollfd fds[] = {{0, POLLIN, 0}};
            while (look(fds) == 0) {
              const int err = rt::onceWait(fds, 1, rt::kMaxWhen);
              check(err == 0 || err == rt::kErrClosing, "onceWait");
              check(newReady.load(rt::relaxed) == 1, "woken for the old file");
            }
            waiterEnds();
          });
          plainThread("kernel", [] {
            kernelReady(0, POLLIN);
            newReady.store(1, rt::relaxed);
            kernelReady(1, POLLIN);
          });
        },
    .quick = {2, 0, 500},
    .full = {3, 1, 20000, 1},
});

// overwrite writes where the nodes of a wait were.
void overwrite() {
  volatile char frame[1024];
  for (size_t i = 0; i < sizeof(frame); i++) frame[i] = 1;
}

const Registered kLeave({
    .name = "once_leave",
    .about = "os::Poll: a wait for two descriptors, one of them twice, ends",
    .setup =
        [] {
          openNumbers(2);
          plainThread("both", [] {
            pollfd fds[] = {{0, POLLIN, 0}, {1, POLLIN, 0}, {1, POLLOUT, 0}};
            await(fds);
            overwrite();
            waiterEnds();
          });
          plainThread("other", [] {
            pollfd fds[] = {{1, POLLIN, 0}};
            await(fds);
            waiterEnds();
          });
          plainThread("kernel", [] {
            kernelReady(0, POLLIN);
            kernelReady(1, POLLIN);
          });
        },
    .quick = {1, 1, 500},
    .full = {2, 1, 20000, 1},
});

int64_t when;

// pollAndRunTimers is pollUntilEnd, and runs the timers, too.
void pollAndRunTimers() {
  while (waiting.load(rt::acquire) != 0) {
    rt::M* mp = rt::acquirem();
    int64_t now = 0;
    const rt::TimerCheck c =
        rt::timersCheck(&rt::allp[0]->timers, &now, /*tidy=*/true);
    rt::releasem(mp);
    const int64_t left = c.next == 0 ? -1 : c.next - rt::nanotime();
    (void)rt::netpoll(c.next != 0 && left <= 0 ? 1 : left);
  }
}

const Registered kDeadline({
    .name = "once_deadline",
    .about = "os::Poll: the time passes while the descriptor becomes ready",
    .setup =
        [] {
          openNumbers(1, pollAndRunTimers);
          when = rt::nanotime() + 1000;
          plainThread("reader", [] {
            pollfd fds[] = {{0, POLLIN, 0}};
            int err = 0;
            while (look(fds) == 0 && err == 0) err = rt::onceWait(fds, 1, when);
            check(err == 0 || err == rt::kErrTimeout || err == rt::kErrClosing,
                  "onceWait");
            check(err == 0 || rt::nanotime() >= when, "too early");
            waiterEnds();
          });
          plainThread("kernel", [] {
            if (choose(2) == 0) kernelReady(0, POLLIN);
          });
        },
    .quick = {1, 1, 500},
    .full = {2, 1, 20000, 1},
});

// ---- On the whole scheduler -------------------------------------------------

void pollNumber0() {
  pollfd fds[] = {{0, POLLIN, 0}};
  check(rt::oncePoll(fds, 1, -1) == 1, "oncePoll");
}

void setUpGoroutines() {
  setUpScheduler();
  kernelOpen(0, 0);
  plainThread("start", leaveArmed);
  settle();
}

const Registered kGoroutine({
    .name = "once_goroutine",
    .about = "os::Poll: a goroutine parks, and the M in the poller wakes it",
    .setup =
        [] {
          setUpGoroutines();
          plainThread("go", [] { startG(pollNumber0); });
          plainThread("kernel", [] { kernelReady(0, POLLIN); });
        },
    .finish = allRan<1>,
    .delayable = ofSchedOrP,
    .quick = {1, 0, 300},
    .full = {2, 1, 5000, 1},
});

const Registered kGoroutineClosed({
    .name = "once_goroutine_closed",
    .about = "os::Poll: a goroutine parks, and a thread closes the descriptor",
    .setup =
        [] {
          setUpGoroutines();
          plainThread("go", [] { startG(pollNumber0); });
          plainThread("closer", [] { closeNumber0(/*closed=*/nullptr); });
        },
    .finish = allRan<1>,
    .delayable = ofSchedOrP,
    .quick = {1, 0, 300},
    .full = {2, 1, 5000, 1},
});

}  // namespace
}  // namespace gump::model
