// The kernel, and the end of the process, as the library sees them under the
// model checker: in place of runtime/sys/os_linux.cc and runtime/diag/panic.cc.
#include "tests/model/os.h"

#include <cerrno>
#include <cstring>

#include "gump/internal/linkname.h"
#include "gump/panic.h"
#include "netpoll/backend.h"
#include "runtime/diag/panic.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/sysmon.h"
#include "runtime/sched/thread.h"
#include "runtime/sys/base.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/userfault_linux.h"
#include "tests/model/checker.h"
#include "tests/model/model.h"

namespace gump::rt {

// Time stands still while any thread can run.
int64_t nanotime() { return model::clockNow(); }
int64_t walltime() { return model::clockNow(); }
int64_t threadCpuTime(int32_t) { return -1; }
uint64_t ownSleeps() { return 0; }
void sleepsInit() {}
void preciseSleeps(M*) {}
void setThreadName(const char*) {}
void ordinarySleeps(M*) {}
RunOnWake runOnWake() { return {}; }
void undoRunOnWake(RunOnWake) {}
void queueOnWake() {}
uint32_t raisePriority() { return 0; }
void lowerPriority(uint32_t) {}
void declineSignals() {}
void threadName(char (*)[kThreadNameMax]) {}
int32_t gettid() { return 1; }
void tgkill(int32_t, int) {}
void taskDirInit() {}
// Every thread seems to be stopped. Of such a thread the runtime does not know
// what it does, so a look takes no P and sends no signal.
int64_t readTaskFile(const char*, char* buf, size_t) {
  constexpr char kStatus[] = "State:\tT (stopped)\n";
  std::memcpy(buf, kStatus, sizeof(kStatus));
  return sizeof(kStatus) - 1;
}
int64_t threadCount() { return 1; }
size_t inertThreads(int32_t*, size_t) { return 0; }

void usleep(uint32_t usec) {
  if (model::inSchedule()) model::sleepThread(int64_t{usec} * 1000);
}
void osyield() {
  if (model::inSchedule()) model::yieldThread();
}
void futexsleep(Atomic<uint32_t>* addr, uint32_t val, int64_t ns) {
  if (!model::inSchedule()) model::fail("futexsleep in setup");
  model::futexWait(addr->rawAddress(), val, ns);
}
int32_t futexwakeup(Atomic<uint32_t>* addr, uint32_t cnt) {
  return model::inSchedule() ? model::futexWake(addr->rawAddress(), cnt) : 0;
}

void membarrierInit() {}
void asymmetricHeavy() {
  if (model::inSchedule()) model::barrierAll();
}

int32_t getproccount() { return 1; }
void* sysReserve(size_t n) { return model::sysPages(n); }
int sysReserveAt(uintptr_t, size_t) { return ENOMEM; }
void sysFree(void*, size_t) {}
void sysName(void*, size_t, const char*) {}
void sysPreferNode(void*, size_t, int32_t) {}

// Threads are virtual. sysmon is one if the model asks for it. In other models
// a thread may take sysmon's steps itself.
int newosproc(M* mp) {
  const auto start = [](void* m) { mstart(static_cast<M*>(m)); };
  if (mp->mstartfn != sysmon) {
    model::spawn("M", start, mp);
  } else if (model::wantsSysmon()) {
    model::spawnDaemon("sysmon", start, mp);
  }
  return 0;
}

Atomic<int32_t> panicking;
void fatalthrow(const char* text) { model::fail(text); }
void fatal(const char* text) { model::fail(text); }
void fatalAll(const char* text) { model::fail(text); }
void fatalError(const char* text) noexcept { model::fail(text); }
void fatalErrorAll(const char* text) noexcept { model::fail(text); }
void fatalInvariant(const char* text) noexcept { model::fail(text); }
void fatalpanic(const char* text, uint32_t, const char*) { model::fail(text); }
// A fatal error ends the schedule, so no second thread finds the same.
bool claimDeath() { return true; }
void claimDeathAndUnlock(Mutex* held) { unlock(held); }
bool isDeathClaimed() { return false; }
bool isPanicking() { return false; }
bool isPanickingHere() { return false; }
void panicAfterFork() {}
void dieInSignal() { model::fail("signal"); }

// userfaultfd. Between two accesses to atomics no other thread runs, so each
// function below is one step.
namespace {
constexpr uint32_t kMissing = 1;
uintptr_t faultPage;
Atomic<uint32_t> pageState;  // kMissing or 0
Atomic<uint32_t> faults;

// fillPage copies a page to `to`, or zeros if it is nullptr, and wakes the
// threads that wait there. Returns EEXIST if the page is there.
int fillPage(uintptr_t to, const void* page) {
  if (to != faultPage) return 0;
  if (pageState.xchg(0, acq_rel) != kMissing) return EEXIST;
  if (page != nullptr) {
    std::memcpy(reinterpret_cast<void*>(to), page, kPageSize);
  } else {
    std::memset(reinterpret_cast<void*>(to), 0, kPageSize);
  }
  futexwakeup(&pageState, 1000);  // another thread may run here
  return 0;
}
}  // namespace
int userfaultOpen() { return 0; }
int userfaultWatch(uintptr_t, size_t) { return 0; }
int userfaultUnwatch(uintptr_t, size_t) { return 0; }
int userfaultMove(uintptr_t to, uintptr_t from) {
  if (pageState.xchg(kMissing, acq_rel) == kMissing) return ENOENT;
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from),
              kPageSize);
  std::memset(reinterpret_cast<void*>(from), 0, kPageSize);
  return 0;
}
int userfaultCopy(uintptr_t to, const void* page) { return fillPage(to, page); }
int userfaultZero(uintptr_t to) {
  (void)fillPage(to, nullptr);
  return 0;
}
bool userfaultDrop(uintptr_t, size_t) { return true; }
void userfaultWake(uintptr_t) { futexwakeup(&pageState, 1000); }
size_t userfaultNext(uintptr_t*, size_t, bool) { return 0; }

// The kernel's part of the poller is one word, and a futex.
namespace {
constexpr uint32_t kBreak = 1, kEdge = 2;
Atomic<uint32_t> events;
Atomic<PollDesc*> edgeOf;
PollDesc* epollDesc;  // the one that watches the instance of epoll.cc

void raise(uint32_t event) {
  events.or_(event, acq_rel);
  futexwakeup(&events, 1);
}

bool poll(int64_t delay, NetpollResult* r) {
  if (delay != 0 && events.load(relaxed) == 0) futexsleep(&events, 0, delay);
  const uint32_t e = events.xchg(0, acq_rel);
  if ((e & kEdge) != 0) {
    netpollready(r, edgeOf.load(relaxed), /*read=*/true, /*write=*/false);
  }
  return (e & kBreak) != 0;
}
}  // namespace

const NetpollBackend kEpollBackend = {
    .name = "model",
    .init = [] { return 0; },
    .open =
        [](PollDesc* pd) {
          if (pd->handler.load(relaxed) != nullptr) epollDesc = pd;
          return 0;
        },
    .close = [](PollDesc*) {},
    .poll = poll,
    .wake = [] { raise(kBreak); },
};
const NetpollBackend kUringBackend = kEpollBackend;

}  // namespace gump::rt

namespace gump::model {
void usePage(uintptr_t page) { rt::faultPage = page; }
bool isPageAway() { return rt::pageState.load(rt::acquire) == rt::kMissing; }
void addAt(uintptr_t addr, uint64_t n) {
  while (inSchedule() && isPageAway()) {
    raiseFault();
    rt::futexsleep(&rt::pageState, rt::kMissing, -1);
  }
  *reinterpret_cast<uint64_t*>(addr) += n;
}
uint64_t valueAt(uintptr_t addr) {
  return *reinterpret_cast<const uint64_t*>(addr);
}
void raiseFault() {
  rt::faults.store(1, rt::release);
  rt::futexwakeup(&rt::faults, 1);
}
void awaitFault() {
  while (rt::faults.xchg(0, rt::acq_rel) == 0) {
    rt::futexsleep(&rt::faults, 0, -1);
  }
}

void kernelEdge(rt::PollDesc* pd) {
  rt::edgeOf.store(pd, rt::relaxed);
  rt::raise(rt::kEdge);
}
void kernelEdgeOfEpoll() {
  if (rt::epollDesc != nullptr) kernelEdge(rt::epollDesc);
}
}  // namespace gump::model

namespace gump {
void panic(std::string_view) { model::fail("a panic"); }
}  // namespace gump
