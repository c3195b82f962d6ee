// Profiles of a running program, as Go's runtime/pprof writes them, and the
// labels by which they tell goroutines apart.
//
//   pprof::Do(ctx, {{"tenant", tenant}, {"op", "checkout"}},
//             [](context::Context labelled) {
//     Checkout(labelled);               // and the goroutines that it starts
//   });
//
// Labels stand in dumps of goroutines and in the goroutine profile. A goroutine
// inherits the labels of the goroutine that starts it: by go(), WaitGroup::Go,
// ErrGroup::Go, Scope::Go, or on a runtime::Thread. A function of
// context::AfterFunc has those of the goroutine that cancels the context. A
// function of time::AfterFunc has none. So it is in Go. With
// GODEBUG=tracebacklabels=0, dumps have no labels.
//
// A goroutine without labels pays nothing for them. One that inherits labels
// costs an allocation of 32 bytes. If there is no memory for that, the process
// ends with "fatal error: out of memory".
//
// All functions may be called from goroutines and from plain threads, before
// Run, inside it and after it. A function parks only if its comment says so.
#ifndef GUMP_PPROF_H_
#define GUMP_PPROF_H_

#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gump/context.h"
#include "gump/internal/linkname_pprof.h"

#pragma GCC visibility push(default)

namespace gump::pprof {

class Labels;

}  // namespace gump::pprof

namespace gump::internal {

// LabelsAccess is for the library itself.
struct LabelsAccess {
  static const rt::LabelSet* set(const pprof::Labels& labels) noexcept;
  static pprof::Labels Adopt(const rt::LabelSet* set) noexcept;
};

}  // namespace gump::internal

namespace gump::pprof {

// Labels is a constant set of labels: texts with a key each. It is a handle, so
// a copy shares the set and only counts the reference. Several threads may read
// and copy one object at the same time. The constructors that copy texts throw
// std::bad_alloc if there is no memory.
class Labels {
 public:
  using Pair = std::pair<std::string_view, std::string_view>;

  // The empty set.
  Labels() noexcept = default;
  // Copies key and value of each pair. Of several with one key, the last
  // counts.
  Labels(std::initializer_list<Pair> labels)
      : Labels(absl::MakeConstSpan(labels.begin(), labels.size())) {}
  explicit Labels(absl::Span<const Pair> labels);

  Labels(const Labels& other) noexcept : set_(other.set_) {
    rt::retainLabels(set_);
  }
  Labels(Labels&& other) noexcept : set_(std::exchange(other.set_, nullptr)) {}
  Labels& operator=(Labels other) noexcept {
    std::swap(set_, other.set_);
    return *this;
  }
  ~Labels() { rt::releaseLabels(set_); }

 private:
  friend internal::LabelsAccess;
  const rt::LabelSet* set_ = nullptr;
};

// WithLabels makes a child of ctx that has the labels of ctx and those given. A
// label replaces an earlier one with the same key. Throws std::bad_alloc if
// there is no memory.
[[nodiscard]] context::Context WithLabels(const context::Context& ctx,
                                          const Labels& labels);

// Label returns the value of a label of ctx, or nullopt. The text lives as long
// as ctx.
[[nodiscard]] std::optional<std::string_view> Label(const context::Context& ctx,
                                                    std::string_view key);

}  // namespace gump::pprof

namespace gump::internal {

// LabelScope gives the caller's goroutine the labels of a context for as long
// as it lives.
class LabelScope {
 public:
  explicit LabelScope(const context::Context& ctx);
  LabelScope(const LabelScope&) = delete;
  LabelScope& operator=(const LabelScope&) = delete;
  ~LabelScope() { rt::leaveLabels(&frame_); }

 private:
  const pprof::Labels labels_;
  rt::LabelFrame frame_;
};

}  // namespace gump::internal

namespace gump::pprof {

// Do calls f(c), where c is WithLabels(ctx, labels). Until f returns, throws or
// ends by Goexit, the calling goroutine has the labels of c, and goroutines
// that it starts inherit them. Afterwards it has those that it had before. As
// in Go, the labels come from contexts: a Do inside of f that is not given c or
// a child of c does not add to the labels of c, but replaces them.
//
// Do parks only as f does. f must return on the goroutine that called it. Do
// throws what f throws, and std::bad_alloc if there is no memory.
template <class F>
void Do(const context::Context& ctx, const Labels& labels, F&& f) {
  context::Context inner = WithLabels(ctx, labels);
  const internal::LabelScope scope(inner);
  std::forward<F>(f)(std::move(inner));
}

// WriteProfile writes a profile to fd, which stays open.
//
//   goroutine      the stacks of all goroutines, with their labels. One whose
//                  stack is unavailable, because it is in a system call, counts
//                  at its start function, and without labels.
//   threadcreate   the library's threads, each at its first function
//   goroutineleak  the stacks of the goroutines that nothing can ever wake. The
//                  label `leak` of each is `certain` or `suspected`.
//   block          where goroutines have waited, how often and how long, since
//                  SetBlockProfileRate switched it on
//   mutex          which unlocks have made others wait, how often and how long,
//                  since SetMutexProfileFraction switched it on
//
// With debug 0 the profile is a profile.proto in a gzip file, which
// `go tool pprof` reads. It names functions, so pprof needs no program beside
// it. With debug 1 it is Go's text. With debug 2 the goroutine profile is the
// text of runtime::Stack(true).
//
// Fails with NotFound for another name, and with ResourceExhausted if there is
// no memory for all stacks. The error of a write has its errno (status.h). A
// pipe without a reader fails with "write profile: broken pipe", and sends no
// SIGPIPE. Parks while fd is not ready.
//
// The goroutine profile shows all goroutines as they were at one moment. It
// stops the world only to mark that moment, however many goroutines there are.
// It parks while another thread stops the world or takes a profile.
//
// A goroutine is leaked if it waits for a channel, a lock, a condition, an
// event, a semaphore, a scope or a WaitGroup that only leaked goroutines can
// reach. It is also leaked if it waits for nothing: for a nil channel, or in a
// select() other than main's. It is not leaked if a global, a plain thread, a
// pending timer or a goroutine that is not leaked can reach the object.
//
//  * `certain` means that the goroutine waits for nothing.
//  * `suspected` means that the library has found no word of memory that refers
//    to the object, other than words of leaked goroutines. It does not see
//    every reference: it misses an address inside of another goroutine's
//    closure, a pointer that a thread has only in a register, and one that is
//    not stored as a plain word. Without AddressSanitizer it guesses where
//    blocks of malloc begin and end.
//  * Some leaks are not reported. A stale copy of a pointer hides a leak. An
//    allocator other than glibc's hides it too, if the handle is in the heap.
//
// The search for leaks reads all memory of the process. It stops the world for
// a second or more for each gigabyte in use. One search runs at a time, and
// other callers park until it ends.
//
// With debug 2, goroutineleak is the text of runtime::Stack(true) with
// `(leaked)` or `(leak suspected)` behind the reason of the wait. The profile
// fails with Unimplemented if the library has ThreadSanitizer, and with
// Unavailable if /proc/self/maps cannot be read. With AddressSanitizer's
// detect_stack_use_after_return=1, the search finds little.
[[nodiscard]] absl::Status WriteProfile(std::string_view name, int fd,
                                        int debug = 0);

// StartCPUProfile begins a CPU profile. Each thread is sampled `hz` times for
// each second of processor time that it uses. StopCPUProfile ends the profile
// and writes it to fd, which stays open and must be open until then. It has the
// form of WriteProfile with debug 0.
//
//   if (!pprof::StartCPUProfile(fd).ok()) return;
//   Serve();
//   pprof::StopCPUProfile();
//
// Samples have the labels of the goroutine that ran. The library walks stacks
// by frame pointers, so compile with -fno-omit-frame-pointer. Code without
// frame pointers cuts stacks short. A stack has its 64 innermost functions.
//
// Fails with FailedPrecondition "cpu profiling already in use" if there is a
// profile, and with InvalidArgument if hz is not in 1 to 1,000,000. The kernel
// looks at such timers once a tick. Above that rate (250 Hz on many systems), a
// sample counts several times.
//
// The profile uses SIGPROF:
//  * A handler that the program had installed gets the signals that are not of
//    the profile. It gets all signals again after StopCPUProfile.
//  * A handler that the program installs during the profile stays, and ends the
//    sampling.
//  * Threads that run no goroutines share the timer ITIMER_PROF. If the program
//    has armed that timer, the program keeps it, and those threads are not
//    sampled.
//  * Threads that block SIGPROF are not sampled.
//
// Parks while another profile is being written.
[[nodiscard]] absl::Status StartCPUProfile(int fd, int hz = 100);

// StopCPUProfile ends the CPU profile and writes it. It does nothing if there
// is no profile. As in Go, it does not report whether the write succeeded.
// Parks while the file is not ready.
void StopCPUProfile();

// SetBlockProfileRate switches the block profile on, for ns > 0, or off. A wait
// for a channel, in a select, for a lock, a condition, an event or a WaitGroup
// counts. A wait of d ns is recorded with the probability d / ns, and always if
// d is at least ns. With 1, all waits are recorded, which costs some
// microseconds each. A wait ends when the goroutine runs again. While the
// profile is off, it costs one load for each operation that waits. The records
// of earlier settings stay. Never parks.
void SetBlockProfileRate(int ns);

// SetMutexProfileFraction switches the mutex profile on, for rate > 0, or off,
// for 0. The profile records one of `rate` unlocks of a sync::Mutex or a
// sync::RWMutex for which others have waited. As in Go, an unlock is charged
// with the time that all waiters of the lock have lost since the unlock before.
// A rate below 0 changes nothing. Returns the rate before. Never parks.
int SetMutexProfileFraction(int rate);

}  // namespace gump::pprof

#pragma GCC visibility pop

#endif  // GUMP_PPROF_H_
