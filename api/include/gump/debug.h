// Package debug looks into a program that runs, over HTTP or as JSON.
// (<gump/runtime.h> has its functions for tuning.)
//
//   void ServeAndDebug(const net::Listener& pages) {  // at 127.0.0.1:6060
//     sync::WaitGroup serving;
//     serving.Go([pages] { (void)debug::ServeHTTP(pages); });
//     Serve();
//     (void)pages.Close();
//     serving.Wait();
//   }
//
// While it serves, these look into it, among others:
//   * go tool pprof http://127.0.0.1:6060/debug/pprof/goroutine
//   * curl 'http://127.0.0.1:6060/debug/goroutines?state=waiting'
//
// Whoever can reach the listener reads the program's command line and stacks,
// and can make it take profiles. So listen on a loopback address or a unix
// socket.
#ifndef GUMP_DEBUG_H_
#define GUMP_DEBUG_H_

#include <string>

#include "absl/status/status.h"
#include "gump/net/listener.h"

namespace gump::debug {

// ServeHTTP serves these pages to the clients of a listener, with a goroutine
// for each connection, until the listener is closed:
//
//   /debug/pprof/            a list of profiles, in HTML
//   /debug/pprof/NAME        a profile of pprof::WriteProfile. `debug=1` and
//                            `debug=2` give Go's texts. `seconds=N` gives the
//                            difference between now and in N seconds.
//   /debug/pprof/profile     a CPU profile, of `seconds=N`, or of 30 s
//   /debug/pprof/cmdline     the command line, with NULs between arguments
//   /debug/pprof/symbol?PC   the names of functions; `+` is between addresses
//   /debug/vars              counters in JSON, as those of Go's expvar
//   /metrics                 metrics::Prometheus()
//   /debug/goroutines        the goroutines, those with the same stack and
//                            state together. `state=S` shows those in a state
//                            (waiting, runnable, running, syscall) or with a
//                            reason to wait ("chan receive"). `group=NAME`
//                            shows those of a runtime::Group. `group=state`,
//                            `where` or `maker` counts them by their state, by
//                            the function that waits, or by the function that
//                            started them. `format=json`, or the field "Accept:
//                            application/json", gives GoroutinesJSON of those
//                            that would be shown.
//
// Pages have the status codes, fields and texts of Go's net/http/pprof and
// expvar, so tools for those work. Methods are GET and HEAD.
//
// A client cannot hold the server up:
//   * A request must arrive within 5 s of its first byte, and have at most 16
//     KiB. An answer must be read within 30 s and a second for each 64 KiB.
//   * There are at most 256 connections. If there are more, the one that has
//     waited longest for a request is closed. If all are being answered, a new
//     one is refused with 503. An idle one is closed after 60 s.
//   * At most 16 profiles with `seconds` are taken at a time. A further one is
//     refused with 503. If its client leaves, a profile ends early.
//
// When the listener is closed, ServeHTTP closes idle connections, ends profiles
// with `seconds`, and gives other answers a second to be sent. Then it returns
// OK, and none of its goroutines remains. If Accept fails for another reason,
// ServeHTTP does the same and returns that error. While Accept fails for lack
// of descriptors or memory, ServeHTTP tries again, at least once a second.
//
// Call it on a goroutine. Panics for a nil listener. Parks. Several may run at
// a time, with a listener each.
[[nodiscard]] absl::Status ServeHTTP(net::Listener listener);

// GoroutinesJSON returns an array with an object for each goroutine, in the
// order of their ids. Plain threads that are parked are there, too. The
// members, in their order:
//
//   id        the number of the goroutine
//   state     waiting, runnable, running or syscall
//   reason    what it waits for, as it stands in dumps: "chan receive"; else ""
//   wait_ms   how long it has waited since a dump, a profile or this function
//             first saw it waiting; null if it does not wait, or if that is not
//             known
//   name      GoOptions::name, or ""
//   labels    an object with the labels of pprof::Do, or null if there is none
//   group     the name of its runtime::Group, or ""
//   scope     the name of its Scope; "of goroutine 7" if that has no name; or
//   ""
//             if it has no scope
//   parent    the id of the goroutine that started it, or 0
//   frames    its functions, the innermost first, as "shop::Fetch /bin/shop
//             +0x41d2". It is empty for a goroutine that runs or that is in a
//             system call, except for the caller, and for plain threads.
//
// Names are cut at 47 bytes, those of groups at 39. The text is UTF-8. A byte
// that is not part of a character becomes U+FFFD. Each object stands on a line.
//
// Stops the world as runtime::Stack(true) does, and parks. May be called from
// goroutines and from plain threads. Throws std::bad_alloc, also if there is no
// memory for all goroutines.
[[nodiscard]] std::string GoroutinesJSON();

}  // namespace gump::debug

#endif  // GUMP_DEBUG_H_
