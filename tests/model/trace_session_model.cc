// Starting, advancing and stopping the execution trace (runtime/diag/trace.cc),
// in the whole scheduler, while main ends and goroutines come and go. Only a
// flight recorder is used, so nothing is written to a file. trace_model.cc has
// the models of what threads write.
#include "gump/internal/linkname.h"
#include "runtime/diag/trace.h"
#include "runtime/diag/trace_state.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/os_linux.h"
#include "tests/model/model.h"
#include "tests/model/sched_kit.h"

namespace gump::model {
namespace {

// The recorder keeps one generation. It drops that one when the next has ended.
bool startRecorder() { return rt::traceRecorderStart(0, 1); }

uint64_t generation() { return rt::traceState.gen.load(rt::relaxed); }

uint64_t firstGeneration;

// The words by which Ms tell that they are in a TraceScope.
const void* scopes[8];

bool ofScopes(const void* addr) {
  for (const void* word : scopes) {
    if (addr == word) return true;
  }
  return false;
}

void setUpTraced() {
  rt::modelTraces = true;
  setUpScheduler();
  plainThread("start",
              [] { startG([] { check(startRecorder(), "no recorder"); }); });
  settle();
  check(ran.load(rt::relaxed) == 1, "no trace");
  ran.store(0, rt::relaxed);
  firstGeneration = generation();
  check(firstGeneration != 0, "no generation");
  nameWord(&rt::traceState.gen, "gen");
  nameWord(&rt::traceHint, "traceHint");
  int n = 0;
  for (rt::M* mp = rt::allm.load(rt::relaxed); mp != nullptr;
       mp = mp->alllink) {
    check(n < 8, "too many Ms");
    scopes[n++] = &mp->trace.writing;
  }
}

void checkHint() {
  check((generation() != 0) == (rt::traceHint.load(rt::relaxed) != 0),
        "the hint is wrong");
}

// ---- Start, Stop, advance ---------------------------------------------------

bool started;

const Registered kSession({
    .name = "trace_session",
    .about = "a recorder is stopped while another is started",
    .setup =
        [] {
          setUpTraced();
          plainThread("stop", [] { startG(rt::traceRecorderStop); });
          plainThread("start",
                      [] { startG([] { started = startRecorder(); }); });
        },
    .finish =
        [] {
          allRan(2);
          check(started == (generation() != 0), "started, but not running");
          checkHint();
        },
    .delayable = ofScopes,
    .hasty = false,
    .quick = {0, 1, 2000},
    .full = {1, 1, 20000, 0},
});

const Registered kStop({
    .name = "trace_stop",
    .about = "a recorder is stopped while sysmon asks for the next generation",
    .setup =
        [] {
          setUpTraced();
          plainThread("stop", [] { startG(rt::traceRecorderStop); });
          plainThread("sysmon", rt::traceAdvance);
        },
    .finish =
        [] {
          allRan(1);
          check(generation() == 0, "not stopped");
          checkHint();
        },
    .delayable = ofScopes,
    .hasty = false,
    .quick = {0, 1, 2000},
    .full = {1, 1, 20000, 0},
});

// Two goroutines park in turns. The M switches directly from one to the other.
rt::Hchan* c;

void receive() {
  for (int i = 0; i < 2; i++) (void)rt::chanrecv(c, nullptr, true);
}
void sendTo() {
  startG(receive);
  for (int i = 0; i < 2; i++) (void)rt::chansend(c, nullptr, true);
}

const Registered kStopSwitch({
    .name = "trace_stop_switch",
    .about = "a recorder is stopped while an M switches between goroutines",
    .setup =
        [] {
          setUpTraced();
          onPlainThread([] {
            static constexpr rt::ElemType kEmpty = {};
            c = rt::makechan(&kEmpty, 0);
          });
          plainThread("stop", [] { startG(rt::traceRecorderStop); });
          plainThread("go", [] { startG(sendTo); });
        },
    .finish =
        [] {
          allRan(3);
          check(generation() == 0, "not stopped");
          checkHint();
        },
    .delayable = ofScopes,
    .hasty = false,
    .quick = {0, 1, 2000},
    .full = {1, 1, 20000, 0},
});

// setUpAdvanced ends a generation, so that the one in the model is not the
// first to end.
void setUpAdvanced() {
  setUpTraced();
  plainThread("sysmon", rt::traceAdvance);
  settle();
  check(generation() == firstGeneration + 1, "the generation has not ended");
}

const Registered kAdvance({
    .name = "trace_advance",
    .about = "a generation ends while a goroutine is started and yields",
    .setup =
        [] {
          setUpAdvanced();
          plainThread("sysmon", rt::traceAdvance);
          plainThread("go", [] { startG([] { rt::gosched(); }); });
        },
    .finish =
        [] {
          allRan(1);
          check(generation() == firstGeneration + 2,
                "the generation has not ended again");
          checkHint();
        },
    .delayable = ofScopes,
    .hasty = false,
    .quick = {0, 1, 2000},
    .full = {1, 1, 20000, 0},
});

// ---- The end of main --------------------------------------------------------

// endMain does what the end of main does to a trace, and a little later what
// the start of the next main does.
void endMain() {
  rt::traceMainEnds();
  const uint64_t gen = generation();
  rt::gosched();
  rt::usleep(100);
  check(generation() == gen, "a generation has ended after main");
  rt::traceMainBegins();
}

const Registered kMain({
    .name = "trace_main",
    .about = "main ends, and begins again, while a generation ends",
    .setup =
        [] {
          setUpTraced();
          plainThread("main", [] { startG(endMain); });
          plainThread("sysmon", rt::traceAdvance);
        },
    .finish =
        [] {
          allRan(1);
          const uint64_t gen = generation();
          check(gen == firstGeneration || gen == firstGeneration + 1,
                "another generation");
          checkHint();
        },
    .delayable = ofScopes,
    .hasty = false,
    .quick = {0, 1, 2000},
    .full = {1, 1, 20000},
});

const Registered kMainStop({
    .name = "trace_main_stop",
    .about = "main ends, and begins again, while a goroutine stops a recorder",
    .setup =
        [] {
          setUpTraced();
          plainThread("main", [] { startG(endMain); });
          plainThread("stop", [] { startG(rt::traceRecorderStop); });
        },
    .finish =
        [] {
          allRan(2);
          check(generation() == 0, "not stopped");
          checkHint();
        },
    .delayable = ofScopes,
    .hasty = false,
    .quick = {0, 1, 2000},
    .full = {1, 1, 20000},
});

}  // namespace
}  // namespace gump::model
