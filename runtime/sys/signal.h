// The runtime handles SIGQUIT (dump and exit) and SIGURG (preemption; the
// program may use it as well), and SIGPROF while there is a CPU profile. Of
// SIGSEGV and SIGBUS it handles those that a goroutine causes by running into
// the guard of its stack. In process 1, the first of a container, it also
// handles SIGHUP, SIGINT and SIGTERM that have the default action, which the
// kernel discards there. All other signals belong to the program.
#ifndef RUNTIME_SYS_SIGNAL_H_
#define RUNTIME_SYS_SIGNAL_H_

#include <signal.h>

namespace gump::rt {

struct M;
struct TracebackMode;

// initsig installs the signal handlers and the terminate handler. A handler
// that is installed already is kept: for SIGQUIT instead of ours, for SIGSEGV,
// SIGBUS and SIGURG behind ours. Called by schedinit, once.
// On: any.  P: either.  Locks: none.  Parks: no.
void initsig();
// initterminate installs the std::terminate handler (terminate.cc); part of
// initsig.
void initterminate();
// startMask returns the signal mask of the thread that started the runtime, as
// it was then. Threads of ours begin with it, but with SIGURG unblocked.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] const sigset_t& startMask();
// ignoredBelow returns the signals for which our handlers are installed and
// which the process ignored before. A child gets that disposition again.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] sigset_t ignoredBelow();
// takeSigprof installs our handler of SIGPROF, before the one that is there.
// giveBackSigprof restores what was there before. `late`: signals of our timers
// may still be on their way. Then it drops all SIGPROFs of that moment, those
// of the program, too. If the program has installed a handler since
// takeSigprof, that one stays. Only one thread at a time calls them.
// On: any.  P: either.  Locks: none.  Parks: no.
void takeSigprof();
void giveBackSigprof(bool late);
// minitSignalStack gives this thread, mp's, a signal stack, because a handler
// must not need the stack that has just overflowed.
// On: any, the thread itself.  P: either.  Locks: none.  Parks: no.
void minitSignalStack(M* mp);
// unminitSignalStack restores the signal stack from before minitSignalStack.
// On: as minitSignalStack.
void unminitSignalStack(M* mp);
// isFault returns true if a signal is about the very instruction that it has
// interrupted, and no process or thread sent it.
// On: any, also in a handler.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool isFault(int sig, const siginfo_t* info);
// forwardsig runs in a handler, and does what would have happened if old were
// installed instead of that handler (I2). If old has a handler, forwardsig
// calls it. If old ignores the signal and it is no fault, nothing happens.
// Otherwise it sets the disposition to the default.
// On: any, in a handler.  P: either.  Locks: none.  Parks: as that handler.
void forwardsig(int sig, siginfo_t* info, void* context, struct sigaction* old);
// endsProcess1 returns true if action is our handler by which a signal ends
// process 1 (I3). It stands for the default action there.
// On: any, also in a handler.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool endsProcess1(const struct sigaction& action);
// crashAbort makes every other thread of the runtime print its stack, and dies
// by SIGABRT, for the core. In process 1 it exits with 128 + SIGABRT.
// On: any.  P: either.  Locks: none.  Parks: no.
[[noreturn]] void crashAbort(const TracebackMode& mode);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_SIGNAL_H_
