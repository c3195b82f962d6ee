// The signals that are ours: SIGQUIT (dump and exit), SIGURG (preemption;
// others may use it too), and of SIGSEGV and SIGBUS those that a goroutine's
// stack caused by running into its guard page. Everything else about signals
// belongs to the program.
#ifndef RUNTIME_SIGNAL_H_
#define RUNTIME_SIGNAL_H_

#include <signal.h>

namespace gump::rt {

struct M;
struct TracebackMode;

// initsig installs the handlers and the terminate handler. A handler that is
// there already is kept: that of SIGQUIT in our stead, those of SIGSEGV and
// SIGBUS behind ours. Called by schedinit, once.
// On: any.  P: either.  Locks: none.  Parks: no.
void initsig();
// initterminate installs the std::terminate handler (terminate.cc); part of
// initsig.
void initterminate();
// minitSignalStack gives this thread, mp's, a signal stack: a handler must not
// need the stack that has just overflowed.
// On: any, the thread itself.  P: either.  Locks: none.  Parks: no.
void minitSignalStack(M* mp);
// unminitSignalStack puts back what was there before.
// On: as minitSignalStack.
void unminitSignalStack(M* mp);
// isFault tells whether a signal is about the very instruction that it has
// interrupted, and was not sent by anybody.
// On: any, also in a handler.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool isFault(int sig, const siginfo_t* info);
// forwardsig does, from within a handler, what would have happened if old had
// been in force in its place (I2). A handler of old's is called; otherwise the
// disposition becomes the default.
// On: any, in a handler.  P: either.  Locks: none.  Parks: as that handler.
void forwardsig(int sig, siginfo_t* info, void* context, struct sigaction* old);
// crashAbort lets every other thread of the runtime print its stack and dies by
// SIGABRT, for the core.
// On: any.  P: either.  Locks: none.  Parks: no.
[[noreturn]] void crashAbort(const TracebackMode& mode);

}  // namespace gump::rt

#endif  // RUNTIME_SIGNAL_H_
