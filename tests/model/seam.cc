// The two places where the library meets the checker: the operations of the
// atomics seam, and the kernel.
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "absl/debugging/symbolize.h"
#include "tests/model/state.h"

namespace gump::model {

using std::memory_order;

namespace {

bool acquires(memory_order o) {
  return o == rt::acquire || o == rt::acq_rel || o == rt::seq_cst;
}
bool releases(memory_order o) {
  return o == rt::release || o == rt::acq_rel || o == rt::seq_cst;
}

}  // namespace

// ---- The seam ---------------------------------------------------------------

bool inSchedule() { return ck != nullptr && ck->current >= 0; }

uint64_t atomicLoad(const void* addr, unsigned size, memory_order order) {
  if (!inSchedule()) return readWord(addr, size);
  point(addr, false);
  Thread& t = self();
  const Delayed* own = delayedAt(t, addr);
  const uint64_t v = own != nullptr ? own->value : readWord(addr, size);
  if (own == nullptr) {
    touch(addr, false);
    const Clock& c = wordOf(addr).released;
    (acquires(order) ? t.clocks.now : t.clocks.observed).join(c);
  }
  if (ck->trace) {
    char b[32];
    say(__builtin_return_address(0), "load  %s = %" PRIx64,
        wordName(addr, b, sizeof(b)), v);
  }
  return v;
}

void atomicStore(void* addr, unsigned size, uint64_t value,
                 memory_order order) {
  if (!inSchedule()) {
    memcpy(addr, &value, size);
    return;
  }
  // Delayed stores must be visible before a release is. So the release is
  // delayed with them (`behind`), or makes them visible first.
  const bool behind =
      releases(order) && order != rt::seq_cst && mayFollow(addr);
  if (releases(order) && !behind) drain();
  point(addr, true);
  Thread& t = self();
  const Clock released = releases(order) ? t.clocks.now : t.clocks.released;
  t.clocks.now.at[ck->current]++;
  const bool again = delayedAt(t, addr) != nullptr;
  const bool late = again || (behind && t.delayed != 0) ||
                    (order != rt::seq_cst && mayDelay(addr));
  if (ck->trace) {
    char b[32];
    say(__builtin_return_address(0), "store %s := %" PRIx64 "%s",
        wordName(addr, b, sizeof(b)), value, late ? " (delayed)" : "");
  }
  if (!late) {
    memcpy(addr, &value, size);
    touch(addr, true);
    wordOf(addr).released = released;
    return;
  }
  delay({addr, size, value, released});
}

namespace {
// beginRmw and endRmw bracket a read-modify-write. A CAS that failed has
// written nothing.
void beginRmw(const void* addr, memory_order order) {
  if (releases(order) || delayedAt(self(), addr) != nullptr) drain();
  point(addr, true);
}
void endRmw(const void* addr, memory_order order, bool wrote) {
  Thread& t = self();
  touch(addr, wrote);
  Word& w = wordOf(addr);
  const bool acq = acquires(order) && (wrote || order == rt::seq_cst);
  (acq ? t.clocks.now : t.clocks.observed).join(w.released);
  if (!wrote) return;
  w.released.join(releases(order) ? t.clocks.now : t.clocks.released);
  t.clocks.now.at[ck->current]++;
}
}  // namespace

uint64_t atomicRmw(void* addr, unsigned size, Rmw op, uint64_t arg,
                   memory_order order) {
  if (inSchedule()) beginRmw(addr, order);
  const uint64_t old = readWord(addr, size);
  uint64_t v = arg;
  if (op == Rmw::kAdd) v = old + arg;
  if (op == Rmw::kAnd) v = old & arg;
  if (op == Rmw::kOr) v = old | arg;
  memcpy(addr, &v, size);
  if (!inSchedule()) return old;
  endRmw(addr, order, true);
  if (ck->trace) {
    char b[32];
    say(__builtin_return_address(0), "rmw   %s: %" PRIx64 " -> %" PRIx64,
        wordName(addr, b, sizeof(b)), old, readWord(addr, size));
  }
  return old;
}

bool atomicCas(void* addr, unsigned size, uint64_t* expected, uint64_t desired,
               memory_order order) {
  if (inSchedule()) beginRmw(addr, order);
  const uint64_t old = readWord(addr, size);
  const bool ok = old == *expected;
  if (ok) memcpy(addr, &desired, size);
  if (inSchedule()) {
    endRmw(addr, order, ok);
    if (ck->trace) {
      char b[32];
      say(__builtin_return_address(0),
          "cas   %s: %" PRIx64 " -> %" PRIx64 "%s%" PRIx64,
          wordName(addr, b, sizeof(b)), *expected, desired,
          ok ? ", done; was " : ", failed: is ", old);
    }
  }
  *expected = old;
  return ok;
}

void atomicFence(memory_order order) {
  if (!inSchedule()) return;
  if (order != rt::acquire) drain();
  Thread& t = self();
  if (acquires(order)) t.clocks.now.join(t.clocks.observed);
  if (releases(order)) t.clocks.released = t.clocks.now;
}

// ---- The kernel -------------------------------------------------------------

void futexWait(const void* addr, uint32_t val, int64_t ns) {
  drain();
  Thread& t = self();
  point(addr, false);
  touch(addr, true);  // it enters the queue
  uint32_t is;
  memcpy(&is, addr, sizeof(is));
  char b[32];
  say(__builtin_return_address(0), "futex %s: sleep while %x%s",
      wordName(addr, b, sizeof(b)), val, is == val ? "" : ": is not");
  if (is != val) return;
  t.state = State::kAsleep;
  t.futex = addr;
  t.deadline = ns < 0 ? -1 : ck->now + ns;
  pass(/*mayStay=*/false);
}

int32_t futexWake(const void* addr, uint32_t cnt) {
  drain();
  point(addr, true, /*mustLive=*/false);  // the kernel needs only the address
  touch(addr, true);
  char b[32];
  say(__builtin_return_address(0), "futex %s: wake",
      wordName(addr, b, sizeof(b)));
  int32_t woken = 0;
  for (int k = 1; k < ck->nthreads && cnt > 0; k++) {
    Thread& t = ck->threads[(ck->current + k) % ck->nthreads];
    if (t.state != State::kAsleep || t.futex != addr) continue;
    t.state = State::kRunnable;
    t.futex = nullptr;
    cnt--;
    woken++;
  }
  return woken;
}

void yieldThread() {
  if (self().yielded) {
    pass(/*mayStay=*/!othersCanRun());
    return;
  }
  self().yielded = true;
  pass(/*mayStay=*/true);
}

void sleepThread(int64_t ns) {
  drain();
  Thread& t = self();
  t.state = State::kAsleep;
  t.futex = nullptr;
  t.deadline = ck->now + ns;
  pass(/*mayStay=*/false);
}

int64_t clockNow() {
  if (!inSchedule()) return ck == nullptr ? 1 : ck->now;
  point(&ck->now, false);
  touch(&ck->now, false);
  return ck->now;
}

void barrierAll() {
  for (int i = 0; i < ck->nthreads; i++) {
    // A barrier on all processors is an access to all their words.
    for (int k = 0; k < ck->threads[i].delayed; k++) {
      flushOne(ck->threads[i], ck->threads[i].stores[k]);
    }
    ck->threads[i].delayed = 0;
    if (ck->threads[i].preempted) ck->threads[i].justified = true;
  }
}

void beforeFree() {
  if (inSchedule()) drain();
}

Clocks* currentClocks(int* i) {
  if (!inSchedule()) return nullptr;
  *i = ck->current;
  return &self().clocks;
}

void failRace(uintptr_t addr, bool write, int other, bool otherWrote,
              const void* pc, const void* otherPc) {
  char here[120] = "?", there[120] = "?";
  absl::Symbolize(static_cast<const char*>(pc) - 1, here, sizeof(here));
  absl::Symbolize(static_cast<const char*>(otherPc) - 1, there, sizeof(there));
  char text[400];
  snprintf(text, sizeof(text),
           "race on %#zx: %s of %s in %s, unordered with a %s of %s in %s",
           static_cast<size_t>(addr), write ? "write" : "read", self().name,
           here, otherWrote ? "write" : "read", ck->threads[other].name, there);
  fail(text);
}

}  // namespace gump::model
