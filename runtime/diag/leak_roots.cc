// The first steps of a search: which goroutines and threads there are, and
// which memory is not read. leaks.cc says why.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/diag/leak_graph.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/stack_arena.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/tls.h"
#include "runtime/wait/sema.h"

namespace gump::rt {

void LeakGraph::addGoroutines(uintptr_t sp) {
  struct Arg {
    LeakGraph* graph;
    uintptr_t sp;
    const G* self;
  } arg{this, sp, getg()};
  forEachG(
      [](G* gp, void* p) {
        const auto* a = static_cast<const Arg*>(p);
        const uint32_t status = readgstatus(gp) & ~uint32_t{kGscan};
        a->graph->skip(addressOf(gp), addressOf(gp + 1));
        if (status == kGidle || status == kGdead) return;
        Goroutine g{};
        g.gp = gp;
        g.node = kRoot;
        const Span all{gp->stack.lo, gp->stack.hi};
        g.stack = all;
        // Frames on a stack of the program's are in the program's memory.
        if (gp == a->self) {
          if (within(all, a->sp)) g.stack.lo = a->sp;
          g.running = true;
        } else if (gp->stack.lo == 0 || gp->sched.fresh != 0) {
          g.stack = {};
        } else if (status == kGwaiting || status == kGrunnable) {
          const bool saved =
              within(all, gp->sched.sp) && !gp->inPlace && !gp->onOtherStack;
          if (saved) g.stack.lo = gp->sched.sp;
          g.running = !saved;
        } else {
          g.running = true;
        }
        a->graph->goroutines_.push(g);
      },
      &arg);
  std::sort(goroutines_.begin(), goroutines_.end(),
            [](const Goroutine& a, const Goroutine& b) { return a.gp < b.gp; });
}

namespace {

// eachSemaWaiter calls f(G*, address) for each waiter in the tree of t.
template <class F>
void eachSemaWaiter(const Sudog* t, const F& f) {
  for (; t != nullptr; t = t->next) {
    for (const Sudog* s = t; s != nullptr; s = s->waitlink) {
      f(s->g, addressOf(t->elem));
    }
    eachSemaWaiter(t->prev, f);
  }
}

}  // namespace

void LeakGraph::findSemas() {
  for (SemaRoot& root : semtable) {
    if (root.nwait.load(acquire) == 0) continue;  // none has come before
    LockScope hold(&root.lock);
    eachSemaWaiter(root.treap, [this](const G* gp, uintptr_t addr) {
      if (Goroutine* g = goroutineOf(gp); g != nullptr) g->sema = addr;
    });
  }
  skip(addressOf(semtable), addressOf(semtable + kSemTabSize));
}

// The program may have made the thread of Run, or that of the caller, with a
// stack that is a part of other memory. So only the first thread counts (S1).
// The stacks of our own threads have a guard below them.
bool LeakGraph::skipBelow(uintptr_t sp) {
  constexpr uintptr_t kMost = 64 << 10;
  const Mapping* m = mappingOf(sp);
  if (m == nullptr) return false;
  skip(std::max(m->lo, sp - kMost), sp);
  return m->mainStack;
}

void LeakGraph::addThreads(uintptr_t sp) {
  int64_t known = 0;
  const G* self = getg();
  for (const M* mp = allm.load(acquire); mp != nullptr; mp = mp->alllink) {
    skip(addressOf(mp), addressOf(mp + 1));
    if (mp->procid.load(acquire) == 0) continue;
    const G* curg = mp->curg.load(acquire);
    const bool caller = mp == self->m;
    if (caller && self->foreign) {
      if (skipBelow(sp)) known++;
      continue;
    }
    if (!caller && curg != nullptr) {
      // A goroutine that is preempted in place has its registers in memory.
      if (curg->inPlace && readgstatus(const_cast<G*>(curg)) == kGrunnable) {
        known++;
      }
      continue;
    }
    if ((mp->presumed.load(relaxed) & kPresumedHook) != 0) continue;
    const bool first = skipBelow(mp->g0.sched.sp);
    if (first || mp != &m0) known++;
    if (caller) continue;
    skip(mp->signalStackLo, mp->signalStackLo + mp->signalStackSize);
  }
  int32_t inert[16];
  known += static_cast<int64_t>(inertThreads(inert, 16));
  allAtRest_ = threadCount() == known;
}

void LeakGraph::skipStacks() {
  const Span shadow = LeakHeap::shadow();
  skip(shadow.lo, shadow.hi);
  const Span own = search_->store_.span();
  skip(own.lo, own.hi);
  for (const Mapping& m : mappings_) {
    if (m.lo >= shadow.lo && m.hi <= shadow.hi) continue;
    // An arena begins at a multiple of kArenaSize, and this is where it is
    // found.
    for (uintptr_t at = m.lo - m.lo % kArenaSize; at < m.hi; at += kArenaSize) {
      const Arena* a = arenaOf(at);
      if (a != nullptr) skip(a->base, a->base + a->size);
    }
  }
  std::sort(skipped_.begin(), skipped_.end(),
            [](const Span& a, const Span& b) { return a.lo < b.lo; });
}

// The kernel merges mappings that lie side by side, for example a heap and our
// own tables.
void LeakGraph::cutMappings() {
  const Span* s = skipped_.begin();
  for (const Mapping& m : mappings_) {
    for (uintptr_t at = m.lo; at < m.hi;) {
      while (s != skipped_.end() && s->hi <= at) s++;
      if (s != skipped_.end() && s->lo <= at) {
        at = std::min(m.hi, s->hi);
        continue;
      }
      Mapping piece = m;
      piece.lo = at;
      piece.hi = s == skipped_.end() ? m.hi : std::min(m.hi, s->lo);
      at = piece.hi;
      heap_.cut(piece, &pieces_);
    }
  }
}

}  // namespace gump::rt
