// Small programs and common patterns.
#include "tests/gotest/leak_programs.h"

#include <memory>
#include <utility>
#include <vector>

#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/select.h"
#include "gump/sync/cond.h"
#include "gump/sync/errgroup.h"
#include "gump/sync/event.h"
#include "gump/sync/mutex.h"
#include "gump/sync/rwmutex.h"
#include "gump/sync/semaphore.h"
#include "gump/sync/waitgroup.h"

namespace gump::gotest {
namespace {

// ---- Small programs (simple.go)

void NilRecv() {
  go([] { chan<int>().Recv(); });
}

void NilSend() {
  go([] { chan<int>().Send(1); });
}

void SelectNoCases() {
  go([] { select(); });
}

void ChanRecv() {
  go([] { make_chan<int>().Recv(); });
}

void ChanSend() {
  go([] { make_chan<int>().Send(0); });
}

void Select() {
  go([] {
    chan<int> in = make_chan<int>();
    chan<int> out = make_chan<int>();
    select(Recv(in), Send(out, 0));
  });
}

void SelectOfMany() {
  go([] {
    std::vector<chan<int>> all;
    std::vector<SelectCase> cases;
    for (int i = 0; i < 40; i++) all.push_back(make_chan<int>());
    for (chan<int>& c : all) cases.push_back(Recv(c));
    select(absl::MakeSpan(cases));
  });
}

void WaitGroup() {
  go([] {
    sync::WaitGroup wg;
    wg.Add(1);
    wg.Wait();
  });
}

void MutexStack() {
  for (int i = 0; i < 10; i++) {
    go([] {
      sync::Mutex mu;
      mu.Lock();
      mu.Lock();
    });
  }
}

void MutexHeap() {
  for (int i = 0; i < 10; i++) {
    go([] {
      go([mu = std::make_shared<sync::Mutex>()] {
        mu->Lock();
        mu->Lock();
      });
    });
  }
}

void RWMutexRLock() {
  go([mu = std::make_shared<sync::RWMutex>()] {
    mu->Lock();
    mu->RLock();
  });
}

void RWMutexLock() {
  go([] {
    sync::RWMutex mu;
    mu.RLock();
    mu.Lock();
  });
}

void Cond() {
  go([] {
    sync::Mutex mu;
    sync::Cond cond(mu);
    mu.Lock();
    cond.Wait();
  });
}

void CondHeap() {
  struct State {
    sync::Mutex mu;
    sync::Cond cond{mu};
  };
  auto state = std::make_shared<State>();
  for (int i = 0; i < 3; i++) {
    go([state] {
      state->mu.Lock();
      state->cond.Wait();
    });
  }
}

void Event() {
  go([] {
    sync::Event never;
    never.Wait();
  });
}

void Semaphore() {
  go([] {
    sync::Semaphore slots(1);
    slots.Acquire();
    slots.Acquire();
  });
}

void Mixed() {
  go([] {
    chan<int> c = make_chan<int>();
    sync::WaitGroup wg;
    wg.Add(1);
    go([c, &wg] {
      c.Send(0);
      wg.Done();
    });
    wg.Wait();
    c.Recv();
  });
}

// ---- Stress (stresstests.go)

// Each goroutine waits for the next, and the last for nothing that comes.
void DaisyChain() {
  go([] {
    chan<int> left = make_chan<int>();
    for (int i = 0; i < 19; i++) {
      chan<int> right = make_chan<int>();
      go([left, right] { left.Send(1 + right.Recv().value_or(0)); });
      left = right;
    }
    left.Recv();
  });
}

// ---- Common patterns (commonpatterns.go)

// No goroutine closes the channel over which the workers range.
void NoCloseRange() {
  go([] {
    chan<int> work = make_chan<int>();
    for (int i = 0; i < 3; i++) {
      go([work] {
        while (work.Recv().has_value()) {
        }
      });
    }
    for (int i = 0; i < 3; i++) work.Send(i);
  });
}

class Worker {
 public:
  void Start() {
    go([work = work_, done = done_] {
      for (bool stop = false; !stop;) {
        select(Recv(work), Recv(done, [&] { stop = true; }));
      }
    });
  }
  void Add(int item) { work_.Send(item); }
  void Stop() { done_.Close(); }

 private:
  chan<int> work_ = make_chan<int>();
  chan<void> done_ = make_chan<void>();
};

void MethodContractViolation() {
  Worker worker;
  worker.Start();
  worker.Add(1);
  worker.Add(2);  // and no Stop
}

void DoubleSend() {
  go([] {
    chan<int> c = make_chan<int>();
    go([c] {
      c.Send(-1);  // an error, and no return
      c.Send(1);
    });
    c.Recv();
  });
}

void EarlyReturn() {
  go([] {
    chan<int> c = make_chan<int>();
    go([c] { c.Send(1); });
  });
}

void NCast() {
  go([] {
    chan<int> first = make_chan<int>();
    for (int i = 0; i < 5; i++) {
      go([first, i] { first.Send(i); });
    }
    first.Recv();
  });
}

void Timeout() {
  auto [ctx, cancel] = context::WithCancel(context::Background());
  cancel();
  for (int i = 0; i < 20; i++) {
    go([ctx = ctx] {
      chan<int> answer = make_chan<int>();
      ctx.Done().Recv();
      go([answer] { answer.Send(1); });
    });
  }
}

// ---- Not of Go

// The group's functions return an error only when they are told to.
void GroupOfWaiters() {
  go([] {
    sync::ErrGroup group;
    chan<int> c = make_chan<int>();
    for (int i = 0; i < 3; i++) {
      group.Go([c] {
        c.Recv();
        return absl::OkStatus();
      });
    }
    (void)group.Wait();
  });
}

#define GUMP_PROGRAM(name, leaks) \
  { #name, name, leaks }
constexpr LeakProgram kSmall[] = {
    GUMP_PROGRAM(NilRecv, 1),        GUMP_PROGRAM(NilSend, 1),
    GUMP_PROGRAM(SelectNoCases, 1),  GUMP_PROGRAM(ChanRecv, 1),
    GUMP_PROGRAM(ChanSend, 1),       GUMP_PROGRAM(Select, 1),
    GUMP_PROGRAM(SelectOfMany, 1),   GUMP_PROGRAM(WaitGroup, 1),
    GUMP_PROGRAM(MutexStack, 10),    GUMP_PROGRAM(MutexHeap, 10),
    GUMP_PROGRAM(RWMutexRLock, 1),   GUMP_PROGRAM(RWMutexLock, 1),
    GUMP_PROGRAM(Cond, 1),           GUMP_PROGRAM(CondHeap, 3),
    GUMP_PROGRAM(Event, 1),          GUMP_PROGRAM(Semaphore, 1),
    GUMP_PROGRAM(Mixed, 2),          GUMP_PROGRAM(DaisyChain, 20),
    GUMP_PROGRAM(NoCloseRange, 3),   GUMP_PROGRAM(MethodContractViolation, 1),
    GUMP_PROGRAM(DoubleSend, 1),     GUMP_PROGRAM(EarlyReturn, 1),
    GUMP_PROGRAM(NCast, 4),          GUMP_PROGRAM(Timeout, 20),
    GUMP_PROGRAM(GroupOfWaiters, 4),
};

}  // namespace

absl::Span<const LeakProgram> SmallLeaks() { return kSmall; }

}  // namespace gump::gotest
