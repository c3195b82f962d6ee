// Package signal delivers the signals of the process to channels.
//
//   chan<int> signals = make_chan<int>(1);
//   signal::Notify(signals, {SIGINT, SIGTERM});
//   go([signals] {
//     int sig = *signals.Recv();
//     ...                                  // shut down
//   });
//
// In the other form, a signal cancels the context of a piece of work:
//
//   auto [ctx, stop] = signal::NotifyContext(context::Background(), {SIGINT});
//   defer _{stop};
//   Serve(ctx);                            // until the user presses ^C
//
// The sender of a signal does not wait. If a channel has neither room for a
// signal nor a receiver, the signal is lost to that channel. Room for one is
// enough for a signal that is to be noticed, not counted. If several signals of
// one kind are pending, the kernel merges them, and so does this library.
//
// A signal for which no channel has asked does what it did before. The first
// call of Notify or Ignore that names a signal remembers its disposition: the
// default, or a handler of the program. That disposition is restored when the
// last channel is stopped, or by Reset. The handler is not called in the
// meantime. If the program installs another handler in the meantime, that one
// stays.
//
// Some numbers are skipped: SIGKILL, SIGSTOP, the signals that libc reserves,
// and numbers that are no signals. A fault of the program itself is a SIGSEGV,
// SIGBUS, SIGFPE, SIGILL, SIGTRAP or SIGSYS from the kernel. It is never
// delivered to a channel and cannot be ignored: it does what it did before. If
// kill or raise sent such a signal, it is delivered. The runtime preempts
// goroutines with SIGURG, and a channel gets those signals too, as in Go. While
// a channel gets SIGQUIT, that signal does not print a dump.
//
// In process 1, the first of a container, the kernel discards signals that have
// the default action. So that such a program can be stopped, the runtime gives
// SIGHUP, SIGINT and SIGTERM a handler there when it starts, if they have the
// default action. Unless a channel gets the signal, the process then exits with
// 128 plus the signal's number.
//
// All functions may be called from goroutines and from plain threads, with or
// without Run, but not from signal handlers. They may park, for the length of a
// list operation. Signals that arrive between two calls of Run are kept, and
// the next Run delivers them. In a child of fork that has not called exec,
// signals do what they did before Notify. Ignored signals stay ignored across
// exec, except SIGURG and the signals of faults.
//
// Once Notify has been called, deadlocks are no longer reported, as in Go,
// because a signal may come.
//
// Memory ordering: a raise or kill in this process happens before the return of
// a receive that gets the signal.
//
// Source: package os/signal of Go 1.26.
#ifndef GUMP_SIGNAL_H_
#define GUMP_SIGNAL_H_

#include <initializer_list>
#include <utility>

#include "gump/chan.h"
#include "gump/context.h"

#pragma GCC visibility push(default)

namespace gump::signal {

// Notify makes c get these signals from now on, or all signals if the list is
// empty. Calls with the same channel add up. If several channels ask for a
// signal, each gets its own copy. The library holds the channel until Stop.
// Panics "os/signal: Notify using nil channel", and also if no descriptor or
// goroutine can be made. Throws std::bad_alloc.
//
// Requires: a channel is not closed before it is stopped. Otherwise the next
// signal is the panic "send on closed channel", which ends the process.
void Notify(const send_chan<int>& c, std::initializer_list<int> signals = {});

// Stop ends the effect of Notify for c. Signals that arrived before are still
// sent. When Stop returns, no more will be sent. Stop does nothing for a
// channel that was not given to Notify.
void Stop(const send_chan<int>& c);

// Ignore makes these signals have no effect, or all signals if the list is
// empty. No channel gets them any more. Reset or Notify ends the effect of
// Ignore.
void Ignore(std::initializer_list<int> signals = {});

// Reset undoes Notify, for all channels, and Ignore. It does so for these
// signals, or for all if the list is empty. Signals that arrived before are
// still sent.
void Reset(std::initializer_list<int> signals = {});

// Ignored returns true if the signal is ignored now: by Ignore, by the program
// itself, or by its parent process, such as nohup.
[[nodiscard]] bool Ignored(int signal);

// StopFunc cancels the context with which it was made, and ends the effect of
// NotifyContext on the signals. Call it when the work is done, and also when
// the signal has come: the next signal then has its former effect, such as
// ending the process. Only the first call has an effect. A StopFunc is a
// handle: a copy is the same StopFunc. A default-constructed StopFunc does
// nothing.
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
// signals arrives, or any signal if the list is empty. Err() is then "context
// canceled", and Cause tells which signal came: Cancelled "interrupt signal
// received". A goroutine waits for the signal until the context is done. Panics
// and throws as Notify and go do.
[[nodiscard]] std::pair<context::Context, StopFunc> NotifyContext(
    const context::Context& parent, std::initializer_list<int> signals = {});

}  // namespace gump::signal

#pragma GCC visibility pop

#endif  // GUMP_SIGNAL_H_
