// The context switch: what asm_*.S defines, and what it calls.
#ifndef RUNTIME_SCHED_SWITCH_H_
#define RUNTIME_SCHED_SWITCH_H_

#include <cstdint>

namespace gump::rt {

struct G;
struct M;

extern "C" {
// gumpMcall saves the user G's context, switches to g0 and calls fn(gp) there.
// fn returns the G to run next, and its context is then resumed. gumpMcall
// returns when gp is resumed.
// On: user.  P: either.  Locks: fn's.  Parks: yes.
void gumpMcall(G* (*fn)(G*));
// gumpMstart makes the current stack the M's g0 and calls fn(g0) on it. fn
// returns the first G to run. gumpMstart returns when this fn, or a later fn of
// gumpMcall on this M, returns nullptr. The context that the M was running last
// is then abandoned.
// On: a thread with setg(g0) done.  P: either.  Parks: blocks the thread.
void gumpMstart(G* g0, G* (*fn)(G*));
// gumpOnG0 is called by gumpMcall and gumpMstart. It is the g0 half of every
// switch (proc_park.cc).
// On: g0.  P: either.  Locks: fn's.  Parks: as fn.
G* gumpOnG0(G* gp, G* (*fn)(G*));
// gumpGoroutineMain is called by gumpGostart. It runs the closure, then goexit1
// (proc_new.cc).
// On: user, the first call.  P: needed.  Parks: yes.
[[noreturn]] void gumpGoroutineMain(G* gp);
// gumpSwitch saves the context of the user G `from`, and then calls
// commit(from, m) on the stack of `to`, which is current on this M. Then it
// sets m.locks to 0, and resumes or starts `to`.
// On: user.  P: needed; m.locks is 1.  Locks: commit's.  Parks: yes.
void gumpSwitch(G* from, G* to, void (*commit)(G*, M*));
// gumpCallSaved calls fn(gp) while gp->sched is the context of the caller, so
// that a dump can walk gp's stack from there (walkParked). No M resumes that
// context.
// On: any.  P: either.  Parks: as fn.
void gumpCallSaved(void (*fn)(G*), G* gp);
// gumpCallAtop calls fn(arg) so that an unwinder walks from fn into the context
// saved at sp, wherever that lies.
// On: any.  P: either.  Parks: no.
void gumpCallAtop(uintptr_t sp, void (*fn)(void*), void* arg);
// gumpGostart is the first frame of every goroutine; unwinders stop there.
void gumpGostart();
}

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_SWITCH_H_
