#include "api/metrics/table.h"

#include <algorithm>
#include <array>
#include <limits>

namespace gump::metrics {

namespace {

constexpr bool kCumulative = true;
constexpr bool kCurrent = false;

double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

constexpr Source Uint64(uint64_t (*read)(Figures&)) {
  return {read, nullptr, {}};
}
constexpr Source Float64(double (*read)(Figures&)) {
  return {nullptr, read, {}};
}
constexpr Source Histogram(rt::TimeHist h) { return {nullptr, nullptr, h}; }
constexpr Source Empty() { return {nullptr, nullptr, {}}; }

struct Metric {
  Description description;
  Source source;
};

// Sorted by name. docs/metrics.md has the same rows.
constexpr Metric kMetrics[] = {
    {{"/cpu/classes/idle:cpu-seconds",
      "Time in which Ps had no goroutine to run. A P that is stopped with "
      "the world is not idle. Compare only with the other metrics of "
      "/cpu/classes.",
      Kind::kFloat64, kCumulative},
     Float64([](Figures& f) { return Seconds(f.Cpu().idle); })},
    {{"/cpu/classes/total:cpu-seconds",
      "GOMAXPROCS times the time that the runtime has existed: the CPU "
      "time that it could use. Sum of all metrics in /cpu/classes.",
      Kind::kFloat64, kCumulative},
     Float64([](Figures& f) { return Seconds(f.Cpu().total); })},
    {{"/cpu/classes/user:cpu-seconds",
      "Time in which Ps were not idle. Besides goroutines it contains the "
      "scheduler, stops of the world and the reclamation cycle, and the "
      "time for which a thread that has a P waits for a processor. "
      "Compare only with the other metrics of /cpu/classes.",
      Kind::kFloat64, kCumulative},
     Float64([](Figures& f) { return Seconds(f.Cpu().total - f.Cpu().idle); })},
    {{"/gc/cycles/automatic:gc-cycles",
      "Reclamation cycles that the runtime has run because none had run "
      "for two minutes.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().forced_cycles; })},
    {{"/gc/cycles/forced:gc-cycles",
      "Reclamation cycles that the program has asked for.", Kind::kUint64,
      kCumulative},
     Uint64([](Figures& f) { return f.Events().requested_cycles; })},
    {{"/gc/cycles/total:gc-cycles", "All reclamation cycles that are complete.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) {
       return f.Events().requested_cycles + f.Events().forced_cycles;
     })},
    {{"/gc/finalizers/executed:finalizers",
      "Functions of runtime::SetFinalizer and runtime::Retire that the "
      "finalizer goroutine has run. Subtract it from "
      "/gc/finalizers/queued:finalizers to get the length of the queue.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().finalizers_executed; })},
    {{"/gc/finalizers/queued:finalizers",
      "Functions of runtime::SetFinalizer and runtime::Retire that have "
      "been queued for the finalizer goroutine.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().finalizers_queued; })},
    {{"/gc/pauses:seconds",
      "Deprecated. The same as /sched/pauses/total/gc:seconds.",
      Kind::kFloat64Histogram, kCumulative},
     Empty()},
    {{"/gc/stack/starting-size:bytes",
      "Size of the stack of a goroutine that asks for no other size. It "
      "is address space, of which only the pages that the goroutine "
      "touches take memory.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Memory().starting_size; })},
    {{"/gump/goroutines/cells:cells",
      "Cells of 256 bytes for goroutines. A goroutine has one, and cells "
      "of goroutines that have ended are used again.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Sched().cells; })},
    {{"/gump/goroutines/preempted-in-place:goroutines",
      "Goroutines that a signal has stopped in the middle of their code, "
      "and that wait for a P.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Sched().in_place; })},
    {{"/gump/goroutines/presumed-blocked:goroutines",
      "Goroutines that have lost their P because their thread was asleep "
      "in a system call that was not declared.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Sched().presumed; })},
    {{"/gump/netpoll/breaks:events",
      "Times that a thread was woken from the poller before an event or a "
      "timer was due.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().poll_breaks; })},
    {{"/gump/netpoll/polls/blocking:polls",
      "Times that a thread went to sleep in the poller.", Kind::kUint64,
      kCumulative},
     Uint64([](Figures& f) { return f.Events().blocking_polls; })},
    {{"/gump/netpoll/readied:goroutines",
      "Goroutines that polls have made runnable. With "
      "GODEBUG=netpoll=uring the thread of the io_uring makes them "
      "runnable, and does not count here.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().polled_ready; })},
    {{"/gump/netpoll/stale:events",
      "Events for a descriptor that had already been closed.", Kind::kUint64,
      kCumulative},
     Uint64([](Figures& f) { return f.Events().stale_events; })},
    {{"/gump/netpoll/waiting:goroutines",
      "Goroutines and plain threads that wait for a descriptor, or for a "
      "file.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Events().netpoll_waiters; })},
    {{"/gump/reclaim/stack-released:bytes",
      "Memory that reclamation cycles have given back from the stacks of "
      "parked goroutines.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().stack_bytes_reclaimed; })},
    {{"/gump/reclaim/worker-shares:shares",
      "Shares of reclamation cycles, of 256 goroutines each, that Ps with "
      "nothing else to do have taken over.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().reclaim_worker_slabs; })},
    {{"/gump/sched/preemptions-in-place:events",
      "Times that a goroutine was stopped by a signal in the middle of "
      "its code.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().preemptions; })},
    {{"/gump/sched/presumptions:events",
      "Times that a goroutine lost its P because its thread was asleep in "
      "a system call that was not declared. Such calls should be declared "
      "(gump::blocking).",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().presumptions; })},
    {{"/gump/sched/procs/idle:procs", "Ps without work.", Kind::kUint64,
      kCurrent},
     Uint64([](Figures& f) { return f.Sched().idle_procs; })},
    {{"/gump/sched/stalls:events",
      "Times that work waited for 10 ms although a P was idle. It is 0, "
      "unless the library has a bug or a thread was kept from running for "
      "a second.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().stalls; })},
    {{"/gump/sched/threads/idle:threads", "Threads without work.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Sched().idle_threads; })},
    {{"/gump/sched/threads/retired:threads",
      "Threads that have ended for lack of work.", Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().threads_retired; })},
    {{"/gump/sched/threads/spinning:threads", "Threads that look for work.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Sched().spinning_threads; })},
    {{"/gump/stacks/free:stacks",
      "Stacks that no goroutine has and that lie in no cache of a P.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Memory().stacks_free; })},
    {{"/gump/stacks/made:stacks",
      "Stacks for goroutines that exist, free ones included.", Kind::kUint64,
      kCurrent},
     Uint64([](Figures& f) { return f.Memory().stacks; })},
    {{"/gump/timers/pending:timers",
      "Timers that will fire: of sleeps, time limits, Timers and Tickers.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Sched().timers; })},
    {{"/gump/uring/completed:calls",
      "Reads, writes and syncs of files that an io_uring has completed.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().ring_completed; })},
    {{"/gump/uring/enters:calls",
      "System calls of the thread that owns the io_uring. Each hands over "
      "any number of requests and takes any number of results.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().ring_enters; })},
    {{"/gump/uring/submitted:calls",
      "Reads, writes and syncs of files that were handed to an io_uring.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Events().ring_calls; })},
    {{"/memory/classes/heap/stacks:bytes",
      "Address space that is reserved for the stacks of goroutines, in "
      "use or not. Only the pages that goroutines have touched, and that "
      "no reclamation cycle has given back, take memory.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Memory().stack_bytes; })},
    {{"/memory/classes/metadata/other:bytes",
      "Memory for the runtime's own data, above all the cells of "
      "goroutines. It is never given back.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Memory().metadata_bytes; })},
    {{"/memory/classes/os-stacks:bytes",
      "Address space for the stacks of the runtime's threads. Only pages "
      "that a thread has touched take memory.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Memory().thread_stack_bytes; })},
    {{"/memory/classes/total:bytes",
      "Sum of all metrics in /memory/classes. The memory of malloc and "
      "new is not the runtime's, and is not counted.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) {
       return f.Memory().stack_bytes + f.Memory().metadata_bytes +
              f.Memory().thread_stack_bytes;
     })},
    {{"/sched/gomaxprocs:threads",
      "The present GOMAXPROCS: the number of threads that can run "
      "goroutines at the same time.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Sched().gomaxprocs; })},
    {{"/sched/goroutines-created:goroutines",
      "Goroutines created since the process began. Those of the runtime "
      "are among them.",
      Kind::kUint64, kCumulative},
     Uint64([](Figures& f) { return f.Sched().created; })},
    {{"/sched/goroutines/not-in-go:goroutines",
      "Approximate number of goroutines in a declared call "
      "(gump::blocking), or presumed blocked in an undeclared one.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Sched().not_in_go; })},
    {{"/sched/goroutines/runnable:goroutines",
      "Approximate number of goroutines that can run and wait for a P, or "
      "for room in their runtime::Group.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Sched().runnable; })},
    {{"/sched/goroutines/running:goroutines",
      "Approximate number of goroutines that run. At most "
      "/sched/gomaxprocs:threads.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Sched().running; })},
    {{"/sched/goroutines/waiting:goroutines",
      "Approximate number of goroutines that wait for something: a "
      "channel, a lock, a descriptor, a time. Those of the runtime are "
      "among them, and those that wait for their turn on a "
      "runtime::Thread.",
      Kind::kUint64, kCurrent},
     Uint64([](Figures& f) { return f.Sched().waiting; })},
    {{"/sched/goroutines:goroutines",
      "Number of goroutines, without those of the runtime.", Kind::kUint64,
      kCurrent},
     Uint64([](Figures& f) { return f.Sched().goroutines; })},
    {{"/sched/latencies:seconds",
      "How long goroutines were runnable before they ran. One of eight "
      "times is counted.",
      Kind::kFloat64Histogram, kCumulative},
     Histogram(rt::TimeHist::kTimeToRun)},
    {{"/sched/pauses/stopping/gc:seconds",
      "How long stops of the world for the reclamation cycle took until "
      "the world stood still. There are none: the cycle does not stop the "
      "world.",
      Kind::kFloat64Histogram, kCumulative},
     Empty()},
    {{"/sched/pauses/stopping/other:seconds",
      "How long other stops of the world took until the world stood "
      "still. Meanwhile some threads still run.",
      Kind::kFloat64Histogram, kCumulative},
     Histogram(rt::TimeHist::kStopping)},
    {{"/sched/pauses/total/gc:seconds",
      "How long stops of the world for the reclamation cycle took until "
      "the world ran again. There are none: the cycle does not stop the "
      "world.",
      Kind::kFloat64Histogram, kCumulative},
     Empty()},
    {{"/sched/pauses/total/other:seconds",
      "How long other stops of the world took until the world ran again: "
      "for a change of GOMAXPROCS, and for dumps.",
      Kind::kFloat64Histogram, kCumulative},
     Histogram(rt::TimeHist::kStopped)},
    {{"/sched/threads/total:threads",
      "Threads of the runtime, and the one that is inside Run.", Kind::kUint64,
      kCurrent},
     Uint64([](Figures& f) { return f.Sched().threads; })},
    {{"/sync/mutex/wait/total:seconds",
      "Approximate time for which goroutines and threads have waited for "
      "a sync::Mutex or a sync::RWMutex, and threads have slept for a "
      "lock of the runtime.",
      Kind::kFloat64, kCumulative},
     Float64([](Figures& f) { return Seconds(f.Events().mutex_wait_ns); })},
};

constexpr size_t kCount = std::size(kMetrics);

constexpr std::array<Description, kCount> kDescriptions = [] {
  std::array<Description, kCount> all;
  for (size_t i = 0; i < kCount; i++) all[i] = kMetrics[i].description;
  return all;
}();

constexpr bool ByName(const Description& a, const Description& b) {
  return a.name < b.name;
}
static_assert(std::is_sorted(kDescriptions.begin(), kDescriptions.end(),
                             ByName));

// Bounds are the bounds of all histograms, in seconds.
absl::Span<const double> Bounds() {
  static const auto bounds = [] {
    std::array<double, rt::kTimeHistCounts + 1> b;
    b.front() = -std::numeric_limits<double>::infinity();
    for (size_t i = 1; i < rt::kTimeHistCounts; i++) {
      b[i] = static_cast<double>(rt::timeHistLowerBound(i)) / 1e9;
    }
    b.back() = std::numeric_limits<double>::infinity();
    return b;
  }();
  return bounds;
}

}  // namespace

absl::Span<const Description> All() { return kDescriptions; }

const Source& SourceOf(size_t i) { return kMetrics[i].source; }

size_t Find(std::string_view name) {
  const auto* at = std::lower_bound(kDescriptions.begin(), kDescriptions.end(),
                                    Description{name, {}}, ByName);
  if (at == kDescriptions.end() || at->name != name) return kCount;
  return static_cast<size_t>(at - kDescriptions.begin());
}

void ValueWriter::Write(size_t i, Figures& figures, Value* v) {
  const Source& s = kMetrics[i].source;
  v->kind_ = kDescriptions[i].kind;
  if (s.uint64 != nullptr) {
    v->uint64_ = s.uint64(figures);
  } else if (s.float64 != nullptr) {
    v->float64_ = s.float64(figures);
  } else {
    v->histogram_.buckets = Bounds();
    v->histogram_.counts.resize(rt::kTimeHistCounts);
    if (s.histogram.has_value()) {
      rt::readTimeHist(*s.histogram, v->histogram_.counts.data());
    }
  }
}

}  // namespace gump::metrics
