// The ring (netpoll/ring.cc) between threads that make requests and a kernel
// (uring.cc), on the whole scheduler: the ring's thread is one of its Ms. Its
// queues are short here: two requests, two completions, one transfer at a time,
// one sync.
#include "netpoll/polldesc.h"
#include "netpoll/ring.h"
#include "tests/model/model.h"
#include "tests/model/sched_kit.h"
#include "tests/model/uring.h"

namespace gump::model {
namespace {

// The ring's thread has begun, and sleeps.
void setUpRing() {
  setUpScheduler();
  plainThread("start", [] { check(rt::ringStart() == 0, "ringStart"); });
  settle();
}

void readOnce() {
  char byte = 0;
  check(rt::ringRead(3, &byte, 1, 0) == 1, "read");
  check(byte == 'x', "the read is not complete");
}

void syncOnce() { check(rt::ringSync(3) == 1, "sync"); }

const Registered kCalls({
    .name = "ring_calls",
    .about = "two threads read while the ring's goes to sleep",
    .setup =
        [] {
          setUpRing();
          plainThread("read0", readOnce);
          plainThread("read1", readOnce);
          plainThread("kernel", [] {
            kernelCompletes();
            kernelCompletes();
          });
        },
    .quick = {2, 1, 300},
    .full = {3, 1, 5000},
});

// One of the two waits until the other's sync is complete.
const Registered kSyncs({
    .name = "ring_syncs",
    .about = "a sync waits for another, and is not forgotten",
    .setup =
        [] {
          setUpRing();
          plainThread("sync0", syncOnce);
          plainThread("sync1", syncOnce);
          plainThread("kernel", [] {
            kernelCompletes();
            kernelCompletes();
          });
        },
    .quick = {2, 1, 300},
    .full = {3, 1, 5000},
});

const Registered kGoroutines({
    .name = "ring_goroutines",
    .about = "goroutines read: one parks, one is in a declared call",
    .setup =
        [] {
          setUpRing();
          plainThread("go", [] {
            startG(readOnce);
            startG([] {
              rt::entersyscall();
              readOnce();
              rt::exitsyscall();
            });
            kernelCompletes();
            kernelCompletes();
          });
        },
    .finish = [] { allRan(2); },
    .delayable = ofSchedOrP,
    .quick = {1, 0, 300},
    .full = {2, 1, 5000, 1},
});

// ---- Watches ----------------------------------------------------------------

constexpr int kWatched = 3;
rt::PollDesc descs[kWatched];
rt::Note told[kWatched];
bool open[kWatched];

int indexOf(const rt::PollDesc* pd) { return static_cast<int>(pd - descs); }

void beginWatch(rt::PollDesc* pd) {
  pd->fd = indexOf(pd);
  open[indexOf(pd)] = true;
  check(rt::ringWatch(pd) == 0, "watch");
}

// After endWatch there is no event.
void endWatch(rt::PollDesc* pd) {
  rt::ringUnwatch(pd);
  open[indexOf(pd)] = false;
}

const Registered kWatch({
    .name = "ring_watch",
    .about = "a descriptor is watched, ready, and watched no more",
    .setup =
        [] {
          setUpRing();
          plainThread("owner", [] {
            rt::PollDesc* pd = &descs[0];
            beginWatch(pd);
            kernelReadable(pd->fd);
            rt::notesleep(&told[0]);
            endWatch(pd);
          });
          plainThread("read", readOnce);
          plainThread("kernel", kernelCompletes);
        },
    .quick = {1, 1, 300},
    .full = {2, 1, 5000, 1},
});

rt::Atomic<int> returned;  // calls that had waited in the kernel

const Registered kRoom({
    .name = "ring_room",
    .about = "watches, of which the kernel drops some for want of room",
    .setup =
        [] {
          setUpRing();
          plainThread("begin", [] {
            for (rt::PollDesc& pd : descs) beginWatch(&pd);
          });
          settle();
          plainThread("read", [] {
            readOnce();
            returned.add(1, rt::relaxed);
          });
          settle();
          plainThread("sync", [] {
            syncOnce();
            returned.add(1, rt::relaxed);
          });
          settle();
          plainThread("kernel", [] {
            kernelCompletes();
            kernelCompletes();
            for (const rt::PollDesc& pd : descs) kernelReadable(pd.fd);
          });
          plainThread("owner", [] {
            rt::notesleep(&told[0]);
            endWatch(&descs[0]);
            rt::notesleep(&told[1]);
            // It is still watched, or watched again.
            rt::noteclear(&told[1]);
            kernelReadable(descs[1].fd);
            rt::notesleep(&told[1]);
            rt::notesleep(&told[2]);
            endWatch(&descs[2]);
            endWatch(&descs[1]);
          });
        },
    .finish =
        [] { check(returned.load(rt::relaxed) == 2, "a call was forgotten"); },
    .quick = {1, 0, 2000},
    .full = {2, 1, 20000, 1},
});

}  // namespace

void watchedEvent(rt::PollDesc* pd, int events) {
  const int i = indexOf(pd);
  check(open[i], "an event after the end");
  check(events >= 0, "the watch has failed");
  // The first report, of the state at the start, may already say that the
  // descriptor is readable.
  if (told[i].key.load(rt::relaxed) == 0) rt::notewakeup(&told[i]);
}

}  // namespace gump::model

namespace gump::rt {
void uringEvent(PollDesc* pd, int events, NetpollResult*) {
  model::watchedEvent(pd, events);
}
}  // namespace gump::rt
