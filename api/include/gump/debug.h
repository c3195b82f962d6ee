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
// Every client that can reach the listener reads the program's command line and
// stacks. It can also make the program take profiles, and `goroutineleak` stops
// the world for long (pprof.h). So listen on a loopback address or a unix
// socket.
#ifndef GUMP_DEBUG_H_
#define GUMP_DEBUG_H_

#include <string>

#include "absl/status/status.h"
#include "gump/net/listener.h"

#pragma GCC visibility push(default)

namespace gump::debug {

// ServeHTTP serves these pages to the clients of a listener, with a goroutine
// for each connection, until the listener is closed:
//
//   /debug/pprof/            a list of profiles, in HTML
//   /debug/pprof/NAME        a profile of pprof::WriteProfile. `debug=1` and
//                            `debug=2` give Go's texts. `seconds=N` gives the
//                            difference between now and in N seconds.
//   /debug/pprof/profile     a CPU profile, of `seconds=N`, or of 30 s
//   /debug/pprof/trace       an execution trace, of `seconds=N`, or of 1 s
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
// expvar, so tools for those work. The methods are GET and HEAD.
//
// A client cannot hold the server up:
//   * A request must arrive within 5 s of its first byte, and have at most 16
//     KiB. An answer must be read within 30 s and a second for each 64 KiB.
//   * There are at most 256 connections. A further client takes the place of
//     the connection that has waited longest for a request. If the server is
//     answering on all of them, it refuses the client with 503. An idle
//     connection is closed after 60 s.
//   * The server takes at most 16 profiles and traces that last for some
//     seconds at a time, and refuses a further one with 503. A profile ends
//     early if its client leaves.
//   * A trace is sent while it is written. It ends early if its client stops
//     reading, or if 64 MiB of it wait for the client. The client then has the
//     beginning, which is readable.
//   * A dump or a list is sent while it is made, so the whole text is never in
//     memory.
//
// When the listener is closed, ServeHTTP closes idle connections, ends the
// profiles and traces that it is taking, and gives other answers a second to be
// sent. Then it returns OK, and none of its goroutines remains. If Accept fails
// for another reason, ServeHTTP does the same and returns that error. While
// Accept fails for lack of descriptors or memory, ServeHTTP tries again, at
// least once a second.
//
// Call it on a goroutine. Parks. Panics for a nil listener. Throws
// std::bad_alloc if there is no memory, after it has ended its connections.
// Several goroutines may call it at a time, with a listener each.
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
//   scope     the name of its Scope, "of goroutine 7" if the Scope has no name,
//             or "" if the goroutine has no Scope
//   parent    the id of the goroutine that started it, or 0
//   frames    its functions, the innermost first, as "shop::Fetch /bin/shop
//             +0x41d2". It is empty for a plain thread, and for a goroutine
//             that runs or is in a system call, but for the caller.
//
// Names are cut at 47 bytes, those of groups at 39. The text is UTF-8. A byte
// that is not part of a character becomes U+FFFD. Each object stands on a line.
//
//   [{"id":1,"state":"running","reason":"","wait_ms":null,...},
//    {"id":7,"state":"waiting","reason":"chan receive","wait_ms":1200,...}]
//
// Stops the world as runtime::Stack(true) does, and parks. May be called from
// goroutines and from plain threads. Throws std::bad_alloc if there is no
// memory for the text or for all goroutines.
[[nodiscard]] std::string GoroutinesJSON();

}  // namespace gump::debug

#pragma GCC visibility pop

#endif  // GUMP_DEBUG_H_
