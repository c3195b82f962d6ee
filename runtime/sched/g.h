// G, a goroutine, and its status machine. It is apart from M and P (runtime2.h)
// because those hold lists of Gs (gqueue.h).
//
// Gs come from slabs, are recycled through free lists and are never freed, so a
// stale pointer reads a wrong answer, not unmapped memory. A field without a
// remark belongs to the M that runs the G, or, while the G is queued or parked,
// to the thread that takes it from there.
#ifndef RUNTIME_SCHED_G_H_
#define RUNTIME_SCHED_G_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/linkname.h"
#include "runtime/sched/stack.h"
#include "runtime/sched/waitreason.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"

namespace gump::rt {

struct Bubble;
struct GExtra;
struct M;

inline constexpr uint64_t kMainGoid = 1;  // of the goroutine of Run

// Status of a G
//
//  kGidle ─ malg, newExtraM ─▶ kGdead ─ needm ─▶ kGsyscall
//
//  kGdead ─newproc─▶ kGrunnable ─── execute ───▶ kGrunning ─goexit0─▶ kGdead
//                     ▲  ▲  ▲                      │ │ │ ▲
//                     │  │  └── gosched, preempt ──┘ │ │ │ exitsyscall,
//                     │  │                           │ ▼ │ still has a P
//                     │  └── exitsyscall, no P left ─┼─kGsyscall
//                     └─ goready ── kGwaiting ◀─gopark
//                                         each arrow: one casgstatus()
//
// The paths of a switch, and readyAndRelease, look at the status themselves.
// They store the new one if casgstatus would do no more than that (isPlain in
// diag/trace.h).
//
// kGscan is a lock bit on kGwaiting and kGsyscall. While it is set, the status
// cannot be left, so the thread that set it may walk the stack. A G in any
// other state is looked at only while the world is stopped. The bit itself is
// set only while the world is stopped or while `scanners` is raised. So leaving
// kGwaiting or kGsyscall needs a CAS only while the world is stopped, while
// scanners > 0, or without a P (noScanner). Only the one owner of a G can make
// any other transition, so that is always a checked store.
enum GStatus : uint32_t {
  // In new memory, never used. Owned by the function that allocates it.
  kGidle = 0,
  // On exactly one run queue, which owns it. Its context is saved, or it never
  // ran, or its thread has the context (inPlace). The thread that takes it from
  // the queue changes this status (execute, releasePreempted).
  kGrunnable = 1,
  // Owned by M gp->m: only that M changes this status. On no queue. The M has a
  // P unless that was taken from outside (preempt.cc).
  kGrunning = 2,
  // Owned by M gp->m: only that M changes this status. On no queue. The M has
  // no P.
  kGsyscall = 3,
  // Parked, and recorded where it waits (wait queue, semaphore root, note). The
  // one waker that takes it from there changes this status (goready).
  kGwaiting = 4,
  // Ended, or new and not started yet. On a free list, or held by newproc or
  // goexit0.
  kGdead = 6,
  kGscan = 0x1000,
  // Tracked, in any status: see tracking.h. The owner of a transition sets,
  // keeps or clears this bit with it. A thread that holds the scan bit may set
  // it. readgstatus hides it.
  kGtracked = 0x2000,
  // Its stack is away, or was until a thread touched it: see hibernate.cc. Only
  // with kGwaiting and kGtracked. Set by a thread that holds the scan bit, and
  // cleared when the status leaves kGwaiting. readgstatus hides it.
  kGhibernated = 0x4000,
};

// Gobuf is a saved context. It holds only the stack pointer, because everything
// else lies in a frame on the stack at sp (asm_*.S draws the frame). Two things
// are not saved: the signal mask, because it belongs to the thread, and the
// caller-saved registers, because a switch is a call. errno and the exception
// globals are copied in C++, by gumpOnG0 and switchTo (proc_park.cc).
struct Gobuf {
  uintptr_t sp = 0;
  // 1: never ran, so it starts at gumpGostart with sp = top of the stack. 0: it
  // resumes the frame at sp.
  uintptr_t fresh = 0;
};

// EhGlobals is the state that the C++ ABI keeps per thread for exceptions in
// flight (__cxa_eh_globals). It travels with the goroutine.
struct EhGlobals {
  void* caughtExceptions = nullptr;
  unsigned int uncaughtExceptions = 0;
};

// G is a goroutine. It has at most 256 bytes, because a program may queue
// millions that have not begun. The closure that go() was given lives inside
// it. A G without a stack (stack.lo == 0) has not begun or has ended.
struct alignas(kCacheLine) G {
  Gobuf sched;     // valid unless running
  M* m = nullptr;  // the M that runs it; nullptr unless running or in a syscall
                   // (or foreign)
  Stack stack;     // bound by execute, returned by goexit0
  Atomic<uint32_t> atomicstatus;  // casgstatus, or if isPlain
  Atomic<uint32_t> selectDone;  // 0→1 by the waker that wins a select; reset by
                                // the owner when it is in no queue any more
  uint64_t goid = 0;
  G* schedlink = nullptr;   // next in a GQueue, GList or free list
  void* param = nullptr;    // set by the waker before goready: the Sudog that
                            // fired; its `success` tells a value from close.
                            // Until then, while the G waits for a channel, the
                            // Hchan, and in a select, the Select
  EhGlobals eh;             // valid while not running
  int savedErrno = 0;       // valid while not running
  WaitReason waitreason{};  // last reason for parking; read by dumps
  Atomic<bool> preempt;     // a request: this G should yield at its next entry
                            // into the runtime
  bool foreign = false;     // pseudo-G of a foreign thread: it parks on its M's
                            // note and is never queued
  bool systemG = false;     // not counted by NumGoroutine, not shown by default
  // These five share a byte, which only the owner of the G writes. The
  // goroutine begins and ends by the slow paths beginCarefully and
  // endCarefully. True for the goroutine of Run, for those of the system, and,
  // if sanitizerOfProgram(), for all. Not reset when the G is reused: the slow
  // paths then find nothing to do.
  bool careful : 1 = false;
  // The function of Run has returned; it has not called Goexit.
  bool mainReturned : 1 = false;
  bool goexited : 1 = false;         // it called Goexit
  bool lockWaitTracked : 1 = false;  // its wait for a lock is measured
  // Its last declared call was long, so the next one gives up the P at once
  // (proc_syscall.cc). A hint, and not reset when the G is reused.
  bool callsBlock : 1 = false;
  // How often the time until it runs is counted; 0: it is not measured.
  uint8_t trackedWeight = 0;
  bool unguarded = false;  // its stack has a canary in place of a guard page
  // The node on whose memory the cell lies: an index in topology.nodes.
  // Constant.
  uint8_t memoryNode = 0;
  // Preempted in place: only its thread resumes it. sched is good for dumps
  // only, see (P4) of preempt_signal.cc.
  bool inPlace = false;
  // It is on a stack that the program made (a coroutine's), not on its own,
  // while it is preempted in place or waits for a P (awaitP). If it is
  // preempted in place, dumps show only the frame that the signal interrupted.
  // If it waits for a P, they show no frame.
  bool onOtherStack = false;
  // It has given its P back to a stop (requeueDuringStop) and has not run
  // since. Written under sched.lock while queued, else by the M that holds the
  // G.
  bool putBack = false;
  // How far it is in a goroutine profile: see goroutine_profile.cc.
  Atomic<uint8_t> profiled;
  // It may have labels (labels.cc). Before `special`, and at an even offset:
  // passesOn reads both.
  alignas(2) bool labelled = false;
  // Foreign, or in a bubble, a group or a home, or announced to the program's
  // sanitizer, or seen to lock (parklocks.h): it is parked and readied, and
  // yields, by the slow path.
  bool special = false;
  uint16_t nestedSyscalls = 0;  // declared calls inside a declared call; only
                                // the goroutine itself uses this
  // Odd: it was preempted in place since it last entered the runtime by itself,
  // and may be in the middle of anything. The first entry after that, or after
  // its P was taken from outside, raises this to the next even number.
  Atomic<uint32_t> interrupted;
  // The M it is bound to, for any of five reasons: LockOSThread, main until it
  // begins, preemption in place, waiting on a stack that the program made
  // (awaitP), belonging to a home (T1 of home.cc).
  M* lockedm = nullptr;

  // The function that was started, and the goroutine that started it. fn says
  // how to run and destroy the closure; nullptr once destroyed.
  const FuncType* fn = nullptr;
  uintptr_t gopc = 0;  // return address of the go() that made it
  uint64_t parentGoid = 0;
  LocalNode* gls = nullptr;    // newest of the goroutine-local values
  const char* name = nullptr;  // GoOptions::name, malloc'ed by go(), freed by
                               // the goroutine itself; or nullptr
  // Not 0 only if it is tracked (tracking.h). Parked: nanotime when a dump
  // first saw it waiting, or when it began to wait for a lock. kGrunnable:
  // nanotime when it became runnable.
  int64_t waitsince = 0;
  // GoOptions::stack_size: 1 + log2 of its multiple of kMinStackSize, rounded
  // up; 0: default.
  uint8_t stackClass = 0;
  uint8_t groupFlags = 0;  // GroupFlag (group.h)
  // For fuzzsched.h: the fuzzMName of the M that last ran this cell; 0: none
  // has. Written by the M that makes the goroutine current.
  uint8_t fuzzM = 0;
  // With several nodes: the node on which it ran last. That is an index in
  // sched.nodes, or more, if there were more nodes then. A hint. Written by the
  // M that makes the goroutine current.
  uint8_t node = 0;
  // Group::id (group.h), inherited; 0: none. It changes only where the
  // goroutine goes to a home and comes back (T6 of home.cc). If it is not 0,
  // `special` is set.
  uint32_t group = 0;
  Bubble* bubble = nullptr;  // of synctest, inherited; (B1) of synctest.h
  // What few goroutines need. Made at the first need (by CAS), and belongs to
  // the cell for good.
  Atomic<GExtra*> extra;

  // Initialised only so that m0, which has a G, is a constant. Static
  // constructors of the program may use the runtime before a constructor of m0
  // would run.
  alignas(16) unsigned char closure[kClosureSize] = {};
};
static_assert(
    sizeof(G) <= 256,
    "a goroutine that has not begun costs one slab cell of 256 bytes");
static_assert(offsetof(G, lockedm) + sizeof(M*) <= 2 * kCacheLine,
              "a direct switch reads the first two lines, so it ends no later "
              "than lockedm (lookAhead)");

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_G_H_
