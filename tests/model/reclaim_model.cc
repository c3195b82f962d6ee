// The reclamation cycle (runtime/sched/reclaim.cc) against the goroutines whose
// stacks it gives back. If the cycle has set the scan bit of a goroutine, a
// thread that wakes it waits. If the goroutine was woken first, the cycle does
// not set the bit. Other models here explore grace periods, against threads
// that read a retired node.
#include "gump/internal/linkname.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/tracking.h"
#include "tests/model/model.h"
#include "tests/model/sched_kit.h"

namespace gump::model {
namespace {

rt::Hchan* c;

// Two goroutines take turns in parking.
int turns;
void send() {
  for (int i = 0; i < turns; i++) (void)rt::chansend(c, nullptr, true);
}
void receive() {
  for (int i = 0; i < turns; i++) (void)rt::chanrecv(c, nullptr, true);
}

// makeSecondSlab makes cells until they fill one slab. With one slab, a cycle
// wakes no workers.
void makeSecondSlab() {
  while (rt::nextGSlab(rt::nextGSlab(nullptr)) == nullptr) {
    check(rt::malg(nullptr) != nullptr, "no cell");
  }
}

// One goroutine is parked, and a cycle has run before, so that its workers
// exist if there are two slabs.
void setUpParked(int n, int slabs = 1) {
  turns = n;
  setUpScheduler();
  if (slabs == 2) onPlainThread(makeSecondSlab);
  onPlainThread([] {
    static constexpr rt::ElemType kEmpty = {};
    c = rt::makechan(&kEmpty, 0);
  });
  plainThread("before", [] { startG(rt::runtimeGC); });
  settle();
  check(ran.load(rt::relaxed) == 1, "no cycle");
  ran.store(0, rt::relaxed);
  plainThread("park", [] { startG(receive); });
  settle();
}

const Registered kPlain({
    .name = "reclaim_plain",
    .about = "a plain thread's cycle, while goroutines park and are woken",
    .setup =
        [] {
          setUpParked(2);
          plainThread("cycle", rt::runtimeGC);
          plainThread("go", [] { startG(send); });
        },
    .finish = [] { allRan(2); },
    .delayable = ofSchedOrP,
    .hasty = false,
    .quick = {1, 1, 300},
    .full = {2, 1, 5000, 1},
});

const Registered kCycle({
    .name = "reclaim_cycle",
    .about = "a goroutine's cycle with a worker, while another is woken",
    .setup =
        [] {
          setUpParked(1, /*slabs=*/2);
          plainThread("cycle", [] { startG(rt::runtimeGC); });
          plainThread("go", [] { startG(send); });
        },
    .finish = [] { allRan(3); },
    .delayable = ofSchedOrP,
    .hasty = false,
    .quick = {1, 1, 300},
    .full = {2, 1, 5000, 1},
});

// ---- The scan bit and the bit of tracking -----------------------------------

alignas(rt::G) unsigned char cell[sizeof(rt::G)];
rt::G* parked;

// A thread that dumps the goroutine holds its scan bit.
void scan() {
  if (!rt::castogscanstatus(parked, rt::kGwaiting)) return;
  rt::noteWaitSince(parked, /*now=*/1);
  rt::casfrom_Gscanstatus(parked, rt::kGwaiting);
}

void setUpScanned(uint32_t status, uint8_t weight, void (*wake)()) {
  parked = new (cell) rt::G();
  parked->trackedWeight = weight;
  parked->atomicstatus.store(status, rt::relaxed);
  nameWord(&parked->atomicstatus, "status");
  for (const char* t : {"scan", "scan again"}) thread(t, scan);
  thread("wake", wake);
}

const Registered kScanTracked({
    .name = "scan_tracked",
    .about = "a tracked goroutine is parked, is scanned, and is woken",
    .setup =
        [] {
          setUpScanned(rt::kGwaiting | rt::kGtracked, /*weight=*/1, [] {
            rt::casgstatus(parked, rt::kGwaiting, rt::kGrunnable);
          });
        },
    .finish =
        [] {
          check(parked->atomicstatus.load(rt::relaxed) ==
                    (rt::kGrunnable | rt::kGtracked),
                "the status is wrong");
          check(parked->waitsince > 1, "it is not known since when it can run");
        },
    .quick = {2, 1, 200},
    .full = {3, 1, 20000},
});

const Registered kScanNoted({
    .name = "scan_noted",
    .about = "a scan notes since when a goroutine waits, and it is woken",
    .setup =
        [] {
          setUpScanned(rt::kGwaiting, /*weight=*/0, [] {
            rt::casgstatus(parked, rt::kGwaiting, rt::kGrunnable);
            rt::casgstatus(parked, rt::kGrunnable, rt::kGrunning);
          });
        },
    .finish =
        [] {
          check(parked->atomicstatus.load(rt::relaxed) == rt::kGrunning,
                "the status is wrong");
          check(parked->waitsince == 0, "the wait is over, but not its time");
        },
    .quick = {2, 1, 200},
    .full = {3, 1, 20000},
});

// ---- Retire -----------------------------------------------------------------

constexpr int kRetired = 2;
rt::Atomic<int> head;  // the node that the reader finds; kRetired: none
rt::Atomic<bool> deleted[kRetired];

struct Retirement {
  int node;
  uint64_t since;
};

constexpr rt::FuncType kRetire = {
    [](void* closure) {
      const auto* r = static_cast<Retirement*>(closure);
      rt::awaitGracePeriod(r->since);
      deleted[r->node].store(true, rt::relaxed);
    },
    [](void*) {},
    [](void* dst, void* src) noexcept {
      *static_cast<Retirement*>(dst) = *static_cast<Retirement*>(src);
    }};

void retire(int node) {
  head.store(node + 1, rt::relaxed);
  Retirement r = {node, rt::gracePeriodsBegun()};
  check(rt::queueFinalizer(&kRetire, &r), "queueFinalizer");
}

void readTwice() {
  for (int i = 0; i < 2; i++) {
    const int node = head.load(rt::relaxed);
    if (node < kRetired) {
      check(!deleted[node].load(rt::relaxed), "a reader has lost its node");
    }
    rt::gosched();
  }
}

const Registered kRetires({
    .name = "reclaim_retire",
    .about = "two nodes are retired, perhaps one in the other's wait",
    .setup =
        [] {
          setUpScheduler();
          // So that the finalizer goroutine exists and is parked.
          plainThread("before", [] {
            static constexpr rt::FuncType kNothing = {
                [](void*) {}, [](void*) {}, [](void*, void*) noexcept {}};
            check(rt::queueFinalizer(&kNothing, nullptr), "queueFinalizer");
          });
          settle();
          plainThread("go", [] {
            startG(readTwice);
            for (int node = 0; node < kRetired; node++) retire(node);
          });
        },
    .finish =
        [] {
          allRan(1);
          for (const auto& d : deleted) {
            check(d.load(rt::relaxed), "a node was not deleted");
          }
        },
    .delayable = [](const void* addr) { return addr == &head; },
    .hasty = false,
    .quick = {2, 1, 300},
    .full = {2, 1, 20000},
});

}  // namespace
}  // namespace gump::model
