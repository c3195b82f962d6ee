// The interface of a poller's back end. One is chosen when the first descriptor
// is opened.
//
// A back end reports edges. After open has returned, a poll or a thread of the
// back end calls netpollready for the PollDesc whenever a direction of the
// descriptor becomes ready. It does so at least once after the change, and may
// report more edges than there are.
#ifndef NETPOLL_BACKEND_H_
#define NETPOLL_BACKEND_H_

#include <cstdint>

#include "netpoll/polldesc.h"
#include "runtime/sched/netpoll.h"

namespace gump::rt {

// Unless it says otherwise:
// On: any.  P: either.  Locks: none.  Parks: no.
struct NetpollBackend {
  const char* name;
  // init is called once, inside a StandardHold. Returns 0, or the errno that
  // makes this back end unusable here.
  int (*init)();
  // open registers pd->fd for both directions, under pd->tag. Returns 0 or the
  // errno. The PollDesc is complete, and belongs to the caller.
  // On: user, m.locks == 0, or a foreign thread.  Parks: yes.
  int (*open)(PollDesc* pd);
  // close ends the registration. Events that were under way may still arrive.
  // On: user, m.locks == 0, or a foreign thread.  Parks: yes.
  void (*close)(PollDesc* pd);
  // poll collects the events that are ready; delay is as in netpoll. Only one
  // thread at a time calls it with a delay other than 0. Returns true if a
  // break ended it. One break ends one poll.
  // Parks: blocks the thread.
  bool (*poll)(int64_t delay, NetpollResult* r);
  // wake ends the poll with a delay that is under way, or the next one.
  void (*wake)();
};

extern const NetpollBackend kEpollBackend;
extern const NetpollBackend kUringBackend;

// PollTag packs a PollDesc and its tag into the 64 bits that a kernel hands
// back with an event. The low 6 bits of the pointer are zero and its high 16
// are unused, which leaves 22 for the tag.
struct PollTag {
  static constexpr int kBits = 22;
  static constexpr uint32_t kMask = (1U << kBits) - 1;

  static uint64_t pack(const PollDesc* pd, uint32_t tag) {
    return (reinterpret_cast<uintptr_t>(pd) >> 6 << kBits) | (tag & kMask);
  }
  static PollDesc* desc(uint64_t packed) {
    return reinterpret_cast<PollDesc*>(packed >> kBits << 6);
  }
  static uint32_t tag(uint64_t packed) {
    return static_cast<uint32_t>(packed) & kMask;
  }
};
static_assert(alignof(PollDesc) >= 64);
static_assert(PollTag::kBits + kPollTagShift <= 32);

}  // namespace gump::rt

#endif  // NETPOLL_BACKEND_H_
