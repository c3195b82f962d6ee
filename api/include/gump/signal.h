// signal: what the kernel tells the process, by a channel.
//
//   chan<int> signals = make_chan<int>(1);
//   signal::Notify(signals, {SIGINT, SIGTERM});
//   go([signals] {
//     int sig = *signals.Recv();
//     ...                                  // stop what there is to stop
//   });
//
// or, for what is told to end by its context:
//
//   auto [ctx, stop] = signal::NotifyContext(context::Background(), {SIGINT});
//   defer _{stop};
//   Serve(ctx);                            // until somebody presses ^C
//
// Who sends does not wait: a signal for which the channel has no room, and no
// receiver, is lost to that channel. Room for one is enough for a signal that
// is to be noticed, not counted: the kernel, too, makes one of several that are
// pending, and so do we.
//
// A signal that nobody has asked for does what it did before: the first call of
// Notify or Ignore that names a signal remembers its disposition, the default
// or a handler of the program's, and that is put back when the last channel is
// stopped, or by Reset. The handler is not called meanwhile. If the program
// installs another one meanwhile, that stays.
//
// SIGKILL, SIGSTOP, what libc keeps to itself, and numbers that are no signals
// are passed over. A fault of the program's own (SIGSEGV, SIGBUS, SIGFPE,
// SIGILL, SIGTRAP, SIGSYS from the kernel) is never delivered to a channel and
// cannot be ignored: it does what it did before. One that was sent by kill or
// raise is. SIGURG is also what the runtime preempts goroutines by: a channel
// gets those, too, as in Go. While a channel has SIGQUIT, it dumps nothing.
//
// All functions may be called from goroutines and from plain threads, with or
// without Run; not from handlers. They may park, for the length of a list
// operation. Between two calls of Run signals are kept and delivered by the
// next. A child of fork in which nothing was exec'ed has the dispositions of
// before. Ignored signals stay ignored across exec, but for SIGURG and those of
// faults.
//
// Once Notify has been called, deadlocks are no longer reported, as in Go: a
// signal may come.
//
// Memory ordering: what precedes a raise or kill happens before the return of
// a receive that gets the signal, if the same process sent it.
//
// Source: package os/signal of Go 1.26.
#ifndef GUMP_SIGNAL_H_
#define GUMP_SIGNAL_H_

#include <initializer_list>
#include <utility>

#include "gump/chan.h"
#include "gump/context.h"

namespace gump::signal {

// Notify makes c get these signals from now on; without a list, all that can be
// had. Calls with the same channel add up; several channels get each their own
// copy. The channel is held until Stop. Panics "os/signal: Notify using nil
// channel", and if there is no descriptor or goroutine to be had. Throws
// std::bad_alloc.
//
// A channel must not be closed before it is stopped: the next signal would be a
// panic that ends the process, "send on closed channel".
void Notify(const send_chan<int>& c, std::initializer_list<int> signals = {});

// Stop ends what Notify has begun for c. What has arrived until then is still
// sent; when Stop returns, nothing more will be. A channel that is not notified
// is none of its business.
void Stop(const send_chan<int>& c);

// Ignore makes these signals have no effect; without a list, all. No channel
// gets them any more. Reset or Notify ends it.
void Ignore(std::initializer_list<int> signals = {});

// Reset undoes Notify, for all channels, and Ignore; without a list, for all
// signals. What has arrived until then is still sent.
void Reset(std::initializer_list<int> signals = {});

// Ignored tells whether a signal is ignored now: by Ignore, by the program
// itself, or by whoever started it, such as nohup.
[[nodiscard]] bool Ignored(int signal);

// StopFunc cancels the context that it was made with, and gives up the signals.
// Call it when the work is done, and when the signal has come: a second one
// then does what it did before, such as ending the process. Only the first call
// has an effect. A default-constructed one does nothing. It is a handle: a copy
// is the same.
class StopFunc {
 public:
  StopFunc() noexcept = default;
  void operator()() const;

 private:
  friend std::pair<context::Context, StopFunc> NotifyContext(
      const context::Context& parent, std::initializer_list<int> signals);
  context::CancelCauseFunc cancel_;
  chan<int> c_;
};

// NotifyContext makes a child of parent that is cancelled when one of these
// signals arrives, or, without a list, any. Err() is then "context canceled"
// and Cause tells which: Cancelled "interrupt signal received". A goroutine
// waits for that until the context is done. Panics and throws as Notify and go.
[[nodiscard]] std::pair<context::Context, StopFunc> NotifyContext(
    const context::Context& parent, std::initializer_list<int> signals = {});

}  // namespace gump::signal

#endif  // GUMP_SIGNAL_H_
