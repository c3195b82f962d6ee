// PollDesc (netpoll/netpoll.cc) and FdMutex, between plain threads. One of the
// threads plays the kernel.
#include "gump/internal/linkname.h"
#include "netpoll/fd_mutex.h"
#include "netpoll/polldesc.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/time.h"
#include "runtime/sys/os_linux.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

rt::PollDesc* pd;
rt::Atomic<int> bytes;  // that the kernel has for a reader
int result;

void openDesc() {
  onPlainThread([] {
    int err = 0;
    pd = rt::pollOpen(3, &err);
    check(pd != nullptr, "pollOpen");
  });
  nameWord(&pd->rg, "rg");
  nameWord(&pd->info, "info");
}

// readByte takes the steps of a read of one byte.
int readByte() {
  if (const int err = rt::pollReset(pd, rt::PollMode::kRead)) return err;
  for (;;) {
    if (bytes.load(rt::relaxed) > 0) {
      bytes.add(-1, rt::relaxed);
      return rt::kPollOk;
    }
    if (const int err = rt::pollWait(pd, rt::PollMode::kRead)) return err;
  }
}

void arrive() {
  bytes.add(1, rt::relaxed);
  rt::NetpollResult r;
  rt::netpollready(&r, pd, true, false);
  check(r.toRun.empty(), "a plain thread on a queue");
}

const Registered kReady({
    .name = "poll_ready",
    .about = "an edge before, during and after the wait",
    .setup =
        [] {
          openDesc();
          plainThread("reader", [] {
            check(readByte() == rt::kPollOk, "read");
            check(readByte() == rt::kPollOk, "read");
          });
          plainThread("kernel", [] {
            arrive();
            arrive();
          });
        },
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

const Registered kClose({
    .name = "poll_close",
    .about = "close against a reader and an edge",
    .setup =
        [] {
          openDesc();
          plainThread("reader", [] {
            while ((result = readByte()) == rt::kPollOk) {
            }
          });
          plainThread("kernel", arrive);
          plainThread("closer", [] { rt::pollUnblock(pd); });
        },
    .finish = [] { check(result == rt::kErrClosing, "not woken by close"); },
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

const Registered kDeadline({
    .name = "poll_deadline",
    .about = "a deadline that passes, against a reader and an edge",
    .setup =
        [] {
          openDesc();
          plainThread("reader", [] {
            while ((result = readByte()) == rt::kPollOk) {
            }
          });
          plainThread("kernel", arrive);
          plainThread("clock", [] {
            rt::pollSetDeadline(pd, rt::nanotime() + 1000, rt::PollMode::kRead);
            rt::usleep(1);
            rt::M* mp = rt::acquirem();
            int64_t now = 0;
            (void)rt::timersCheck(&rt::allp[0]->timers, &now, true);
            rt::releasem(mp);
          });
        },
    .finish = [] { check(result == rt::kErrTimeout, "no timeout"); },
});

// Both change one word, and neither may undo the other's change.
const Registered kError({
    .name = "poll_error",
    .about = "an error and its end come from the kernel, against close",
    .setup =
        [] {
          openDesc();
          plainThread("kernel", [] {
            const uint32_t tag = pd->tag.load(rt::relaxed);
            rt::pollSetEventErr(pd, true, tag);
            rt::pollSetEventErr(pd, false, tag);
            rt::pollSetEventErr(pd, true, tag);
          });
          plainThread("closer", [] { rt::pollUnblock(pd); });
        },
    .finish =
        [] {
          const uint32_t info = pd->info.load(rt::relaxed);
          check((info & rt::kPollClosing) != 0, "the close is forgotten");
          check((info & rt::kPollEventErr) != 0, "the error is forgotten");
        },
    .quick = {4, 1, 500},
    .full = {5, 1, 20000},
});

const Registered kPassed({
    .name = "poll_passed",
    .about = "a deadline that has passed already, against a reader",
    .setup =
        [] {
          openDesc();
          plainThread("reader", [] { result = readByte(); });
          plainThread("setter",
                      [] { rt::pollSetDeadline(pd, 1, rt::PollMode::kRead); });
        },
    .finish = [] { check(result == rt::kErrTimeout, "no timeout"); },
    .quick = {4, 1, 500},
    .full = {5, 1, 20000},
});

// ---- FdMutex ----------------------------------------------------------------

rt::FdMutex fdmu;
rt::Atomic<int> destroyed;
int inside;

void destroyIf(bool last) {
  if (last) destroyed.add(1, rt::relaxed);
}

void readOnce() {
  if (fdmu.rwlock(rt::PollMode::kRead) != rt::FdMutex::Lock::kOk) return;
  check(++inside == 1, "two readers");
  check(destroyed.load(rt::relaxed) == 0, "destroyed while in use");
  inside--;
  destroyIf(fdmu.rwunlock(rt::PollMode::kRead));
}

const Registered kFdMutex({
    .name = "fd_mutex",
    .about = "FdMutex: two readers and close; destroyed once, by the last",
    .setup =
        [] {
          plainThread("reader0", readOnce);
          plainThread("reader1", readOnce);
          plainThread("closer", [] {
            check(fdmu.close() == rt::FdMutex::Lock::kOk, "close");
            destroyIf(fdmu.decref());
          });
        },
    .finish =
        [] { check(destroyed.load(rt::relaxed) == 1, "not destroyed once"); },
});

}  // namespace
}  // namespace gump::model
