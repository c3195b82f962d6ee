// Leaks of real projects. Behind each function stand the programs of Go's
// corpus that have the mistake.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gump/chan.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/select.h"
#include "gump/sync/cond.h"
#include "gump/sync/mutex.h"
#include "gump/sync/rwmutex.h"
#include "gump/sync/waitgroup.h"
#include "tests/gotest/leak_programs.h"

namespace gump::gotest {
namespace {

// Flag orders two goroutines without being something to wait for in the
// runtime.
class Flag {
 public:
  void Set() { set_.store(true); }
  void Await() const {
    while (!set_.load()) runtime::Gosched();
  }

 private:
  std::atomic<bool> set_ = false;
};

// Two locks are taken in two orders.
void LockOrder() {  // Cockroach10214, Cockroach7504, Hugo3251, Moby36114
  struct State {
    sync::Mutex a, b;
    Flag hasA, hasB;
  };
  auto s = std::make_shared<State>();
  go([s] {
    s->a.Lock();
    s->hasA.Set();
    s->hasB.Await();
    s->b.Lock();
  });
  go([s] {
    s->b.Lock();
    s->hasB.Set();
    s->hasA.Await();
    s->a.Lock();
  });
}

// A drain waits for a task that can only end after the lock of the drain.
void DrainUnderLock() {  // Cockroach1055
  struct Stopper {
    sync::Mutex mu;
    sync::WaitGroup drain;
    chan<void> stopped = make_chan<void>();
    Flag draining;
  };
  auto s = std::make_shared<Stopper>();
  s->drain.Add(1);
  go([s] {
    s->mu.Lock();
    s->draining.Set();
    s->drain.Wait();
  });
  go([s] {
    s->draining.Await();
    s->mu.Lock();
    s->drain.Done();
  });
  go([s] { s->stopped.Recv(); });
}

// The sender gives up because of the context, the receivers do not.
void ReceiversOutliveTheContext() {  // Cockroach10790
  go([] {
    auto [ctx, cancel] = context::WithCancel(context::Background());
    std::vector<chan<bool>> all{make_chan<bool>(), make_chan<bool>()};
    for (const chan<bool>& c : all) {
      go([c, ctx = ctx] { select(Send(c, true), Recv(ctx.Done())); });
    }
    cancel();
    go([all] {
      for (const chan<bool>& c : all) {
        c.Recv();
        c.Recv();
      }
    });
  });
}

// A transaction awaits the end of its context, which is never cancelled.
void ContextIsNeverCancelled() {  // Cockroach13197, Cockroach13755, Grpc862
  struct Transaction {
    context::Context ctx;
    std::optional<context::CancelFunc> cancel;
  };
  auto t = std::make_shared<Transaction>();
  auto [ctx, cancel] = context::WithCancel(context::Background());
  t->ctx = ctx;
  t->cancel = cancel;
  go([t] { t->ctx.Done().Recv(); });
}

// A worker sends to the transport, from which no goroutine receives after the
// stop.
void SendAfterStop() {  // Cockroach1462, Istio16224
  struct Transport {
    chan<int> events = make_chan<int>();
    chan<void> stop = make_chan<void>();
    sync::WaitGroup workers;
  };
  auto t = std::make_shared<Transport>();
  t->workers.Add(1);
  go([t] {
    t->events.Send(1);
    t->events.Send(2);
    t->workers.Done();
  });
  go([t] {
    t->events.Recv();
    t->stop.Close();
    t->workers.Wait();
  });
}

// A reader locks again while a writer waits.
void ReaderBehindWriter() {  // Cockroach16167, Kubernetes62464, Cockroach3710
  struct State {
    sync::RWMutex mu;
    Flag reading;
    std::atomic<bool> writing = false;
  };
  auto s = std::make_shared<State>();
  go([s] {
    s->mu.RLock();
    s->reading.Set();
    // A second reader is let in until the writer waits.
    while (s->mu.TryRLock()) {
      s->mu.RUnlock();
      runtime::Gosched();
    }
    s->mu.RLock();
  });
  go([s] {
    s->reading.Await();
    s->mu.Lock();
  });
}

// The consumer returns early, and the producer has more than fits.
void ConsumerReturnsEarly() {  // Cockroach18101, Cockroach25456
  go([] {
    chan<int> ready = make_chan<int>(1);
    go([ready] {
      for (int i = 0; i < 4; i++) ready.Send(i);
      ready.Close();
    });
    ready.Recv();
  });
}

// Two loops call each other, each from the case of a select.
void CallbackAgainstEvent() {  // Cockroach2448
  struct Loops {
    chan<int> events = make_chan<int>();
    chan<int> callbacks = make_chan<int>();
    chan<void> stop = make_chan<void>();
  };
  auto l = std::make_shared<Loops>();
  go([l] { select(Send(l->events, 1), Recv(l->stop)); });
  go([l] {
    l->events.Recv();
    select(Send(l->callbacks, 1), Recv(l->stop));
  });
  go([l] { select(Send(l->events, 2), Recv(l->stop)); });
}

// Start sends before there is a receiver.
void SendBeforeStart() {  // Cockroach24808
  struct Compactor {
    chan<int> work = make_chan<int>(1);
  };
  go([c = std::make_shared<Compactor>()] {
    c->work.Send(1);
    c->work.Send(2);
  });
}

// An error path returns with the lock held.
void LockIsNotReleased() {  // Etcd5509, Kubernetes13135, Syncthing4829
  struct Client {
    sync::RWMutex mu;
    bool closed = true;
    Flag left;
  };
  auto c = std::make_shared<Client>();
  go([c] {
    c->mu.RLock();
    if (c->closed) {
      c->left.Set();
      return;
    }
    c->mu.RUnlock();
  });
  go([c] {
    c->left.Await();
    c->mu.Lock();
  });
}

// A function locks and calls one that locks the same.
void LockTwice() {  // Etcd6708, Etcd10492, Cockroach9935, Grpc795, Moby17176
  struct Lessor {
    sync::Mutex mu;
    std::function<void()> checkpoint;
  };
  go([] {
    auto l = std::make_unique<Lessor>();
    l->checkpoint = [l = l.get()] {
      l->mu.Lock();
      l->mu.Unlock();
    };
    l->mu.Lock();
    l->checkpoint();
  });
}

// A status is asked of a node that has stopped.
void AskAfterStop() {  // Etcd6857
  struct Node {
    chan<chan<int>> status = make_chan<chan<int>>();
    chan<void> stop = make_chan<void>();
    chan<void> done = make_chan<void>();
  };
  auto n = std::make_shared<Node>();
  go([n] {
    n->stop.Recv();
    n->done.Close();
  });
  go([n] {
    n->stop.Send();
    n->done.Recv();
  });
  go([n] {
    n->done.Recv();
    chan<int> answer = make_chan<int>();
    n->status.Send(answer);
    answer.Recv();
  });
}

// Stop holds the lock that the loop needs before it sees the end.
void StopUnderLock() {  // Etcd6873, Grpc3017
  struct Broadcasts {
    sync::Mutex mu;
    chan<int> updates = make_chan<int>(1);
    chan<void> done = make_chan<void>();
    Flag stopping;
  };
  auto b = std::make_shared<Broadcasts>();
  b->updates.Send(1);
  go([b] {
    b->stopping.Await();
    while (b->updates.Recv().has_value()) {
      b->mu.Lock();
      b->mu.Unlock();
    }
    b->done.Close();
  });
  go([b] {
    b->mu.Lock();
    b->stopping.Set();
    b->updates.Close();
    b->done.Recv();
  });
}

// Adding a token holds a lock that the keeper takes before it reads again.
void TokenKeeper() {  // Etcd7492
  struct Store {
    sync::Mutex tokens;
    chan<int> add = make_chan<int>();
    sync::WaitGroup callers;
    Flag full;
  };
  go([] {
    auto s = std::make_shared<Store>();
    s->callers.Add(1);
    go([s] {
      s->tokens.Lock();
      s->full.Set();
      s->add.Send(1);
      s->tokens.Unlock();
      s->callers.Done();
    });
    go([s] {
      s->full.Await();
      s->tokens.Lock();
      s->add.Recv();
    });
    s->callers.Wait();
  });
}

// The leader replaces the channel for which the followers wait.
void ChannelIsReplaced() {  // Etcd7902
  struct Round {
    sync::Mutex mu;
    chan<bool> next = make_chan<bool>();
    Flag taken;
  };
  auto r = std::make_shared<Round>();
  go([r] {
    const chan<bool> mine = r->next;
    r->taken.Set();
    r->mu.Lock();
    mine.Recv();
  });
  go([r] {
    r->taken.Await();
    r->next = make_chan<bool>();
  });
}

// The result comes after the caller has given up, on an unbuffered channel.
void ResultNobodyWantsAnyMore() {  // Grpc660, Kubernetes5316, Moby33781
  go([] {
    chan<int> result = make_chan<int>();
    chan<void> timeout = make_chan<void>();
    timeout.Close();
    go([result] { result.Send(7); });
    timeout.Recv();
  });
}

// A transport closes its streams, and the readers wait for a buffer.
void ReadersOfAClosedTransport() {  // Grpc1275
  struct Stream {
    chan<int> buffer = make_chan<int>();
  };
  struct Transport {
    std::map<int, std::shared_ptr<Stream>> streams;
  };
  auto t = std::make_shared<Transport>();
  for (int i = 0; i < 3; i++) t->streams[i] = std::make_shared<Stream>();
  for (auto& [id, stream] : t->streams) {
    go([s = stream] { s->buffer.Recv(); });
  }
}

// The balancer is closed while the watcher has an address to deliver.
void WatcherOfAClosedBalancer() {  // Grpc1424
  struct Balancer {
    chan<std::string> addresses = make_chan<std::string>();
    chan<void> done = make_chan<void>();
  };
  go([] {
    auto b = std::make_shared<Balancer>();
    go([b] {
      b->addresses.Send("a");
      b->addresses.Close();
    });
    go([b] {
      while (b->addresses.Recv().has_value()) b->done.Recv();
    });
  });
}

// A keep-alive sleeps on a condition that is signalled once, before it waits.
void SignalIsLost() {  // Grpc1460, Kubernetes10182, Moby30408
  struct Transport {
    sync::Mutex mu;
    sync::Cond awake{mu};
  };
  go([t = std::make_shared<Transport>()] {
    t->awake.Signal();
    t->mu.Lock();
    t->awake.Wait();
  });
}

// Wait is called under the lock that each worker needs for Done.
void WaitUnderLock() {  // Cockroach6181, Moby25384, Istio18454
  go([] {
    sync::Mutex mu;
    sync::WaitGroup workers;
    mu.Lock();
    for (int i = 0; i < 2; i++) {
      workers.Add(1);
      go([&] {
        mu.Lock();
        workers.Done();
        mu.Unlock();
      });
    }
    workers.Wait();
  });
}

// The group counts one worker more than there are.
void OneDoneIsMissing() {  // Moby25348
  go([] {
    sync::WaitGroup plugins;
    plugins.Add(3);
    for (int i = 0; i < 2; i++) {
      go([&plugins] { plugins.Done(); });
    }
    plugins.Wait();
  });
}

// A page builder waits for pages that no goroutine collects any more.
void CollectorHasGone() {  // Hugo5379
  go([] {
    chan<int> pages = make_chan<int>();
    chan<int> results = make_chan<int>(2);
    sync::WaitGroup rendering;
    for (int i = 0; i < 3; i++) {
      rendering.Add(1);
      go([pages, results, &rendering] {
        results.Send(pages.Recv().value_or(0));
        rendering.Done();
      });
    }
    for (int i = 0; i < 3; i++) pages.Send(i);
    rendering.Wait();
  });
}

// An agent restarts its proxy, and reports the end of the old one to itself.
void ReportToOneself() {  // Istio17860, Kubernetes38669, Kubernetes6632
  struct Agent {
    chan<int> status = make_chan<int>();
    sync::Mutex mu;
  };
  go([a = std::make_shared<Agent>()] {
    a->mu.Lock();
    a->status.Send(1);
    a->mu.Unlock();
  });
}

// A condition is broadcast by a goroutine that waits for the lock of another.
void BroadcastComesTooLate() {  // Kubernetes11298
  struct Signal {
    sync::Mutex mu, other;
    sync::Cond changed{mu};
    Flag waiting;
  };
  auto s = std::make_shared<Signal>();
  go([s] {
    s->other.Lock();
    s->mu.Lock();
    s->waiting.Set();
    s->changed.Wait();
  });
  go([s] {
    s->waiting.Await();
    s->other.Lock();
    s->changed.Broadcast();
  });
}

// A watch delivers its error where only the result is read.
void ErrorIsNotRead() {  // Kubernetes25331, Serving2137
  struct Watch {
    chan<int> results = make_chan<int>();
    chan<std::string> errors = make_chan<std::string>();
    context::Context ctx;
  };
  auto [ctx, cancel] = context::WithCancel(context::Background());
  auto w = std::make_shared<Watch>();
  w->ctx = ctx;
  go([w] { w->errors.Send("gone"); });
  go([w] { w->results.Recv(); });
  cancel();
}

// Notifications pass through a ring that is not read, held by the lock.
void NotifyUnderLock() {  // Kubernetes26980, Kubernetes30872
  struct Listener {
    sync::Mutex mu;
    chan<int> next = make_chan<int>();
    Flag locked;
  };
  auto l = std::make_shared<Listener>();
  go([l] {
    l->mu.Lock();
    l->locked.Set();
    l->next.Send(1);
  });
  go([l] {
    l->locked.Await();
    l->mu.Lock();
    l->next.Recv();
  });
}

// A queue shuts down by a condition, and one of its workers never looks.
void QueueIsNotShutDown() {  // Kubernetes58107
  struct Queue {
    sync::Mutex mu;
    sync::Cond filled{mu};
    std::vector<int> items;
  };
  auto q = std::make_shared<Queue>();
  for (int i = 0; i < 2; i++) {
    go([q] {
      q->mu.Lock();
      q->filled.Wait([&q] { return !q->items.empty(); });
      q->mu.Unlock();
    });
  }
}

// A poll closes its end, and the generator of ticks is not told.
void TicksWithoutReader() {  // Kubernetes70277
  go([] {
    chan<int> ticks = make_chan<int>();
    chan<void> done = make_chan<void>();
    go([ticks, done] {
      for (;;) select(Send(ticks, 1), Recv(done));
    });
    ticks.Recv();
    ticks.Recv();
  });
}

// Devices are removed under the lock that the thin pool holds.
void NestedPools() {  // Moby4951, Moby7559
  struct Device {
    sync::Mutex mu;
  };
  struct Pool {
    sync::Mutex mu;
    std::vector<std::shared_ptr<Device>> devices;
    Flag deviceLocked, poolLocked;
  };
  auto p = std::make_shared<Pool>();
  p->devices.push_back(std::make_shared<Device>());
  go([p] {
    p->devices[0]->mu.Lock();
    p->deviceLocked.Set();
    p->poolLocked.Await();
    p->mu.Lock();
  });
  go([p] {
    p->mu.Lock();
    p->poolLocked.Set();
    p->deviceLocked.Await();
    p->devices[0]->mu.Lock();
  });
}

// A progress bar is written to a channel whose reader has seen an error.
void ProgressIsNotRead() {  // Moby21233
  go([] {
    chan<int> progress = make_chan<int>();
    chan<void> released = make_chan<void>();
    go([progress] {
      for (int i = 0; i < 10; i++) progress.Send(i);
    });
    go([progress, released] {
      progress.Recv();
      released.Recv();
    });
  });
}

// A log follower is notified by a watcher that waits for the follower.
void FollowerAndWatcher() {  // Moby27782
  struct Logger {
    sync::Mutex mu;
    chan<int> events = make_chan<int>();
    chan<void> closed = make_chan<void>();
    sync::Cond read{mu};
  };
  auto l = std::make_shared<Logger>();
  go([l] { select(Send(l->events, 1), Send(l->events, 2)); });
  go([l] {
    l->mu.Lock();
    l->read.Wait();
    l->events.Recv();
  });
}

// A monitor is stopped over an unbuffered channel, under its own lock.
void MonitorStopsItself() {  // Moby28462
  struct Monitor {
    sync::Mutex mu;
    chan<void> stop = make_chan<void>();
    Flag stopping;
  };
  auto m = std::make_shared<Monitor>();
  go([m] {
    m->mu.Lock();
    m->stopping.Set();
    m->stop.Send();
  });
  go([m] {
    m->stopping.Await();
    m->mu.Lock();
    m->stop.Recv();
  });
}

// A breaker's request waits for a slot that a blocked request holds.
void SlotIsHeld() {  // Serving2137
  struct Breaker {
    chan<int> slots = make_chan<int>(1);
    chan<void> accepted = make_chan<void>();
  };
  auto b = std::make_shared<Breaker>();
  b->slots.Send(1);
  for (int i = 0; i < 2; i++) {
    go([b] {
      b->slots.Send(1);
      b->accepted.Close();
    });
  }
  go([b] { b->accepted.Recv(); });
}

// A dispatcher of a closed connection waits for its own loop.
void DispatcherClosesItself() {  // Syncthing5795
  struct Connection {
    chan<void> loopDone = make_chan<void>();
    chan<int> inbox = make_chan<int>();
  };
  go([] {
    auto c = std::make_shared<Connection>();
    go([c] {
      c->inbox.Recv();
      c->loopDone.Recv();
      c->loopDone.Close();
    });
    c->inbox.Send(1);
  });
}

#define GUMP_PROGRAM(name, leaks) \
  { #name, name, leaks }
constexpr LeakProgram kProjects[] = {
    GUMP_PROGRAM(LockOrder, 2),
    GUMP_PROGRAM(DrainUnderLock, 3),
    GUMP_PROGRAM(ReceiversOutliveTheContext, 1),
    GUMP_PROGRAM(ContextIsNeverCancelled, 1),
    GUMP_PROGRAM(SendAfterStop, 2),
    GUMP_PROGRAM(ReaderBehindWriter, 2),
    GUMP_PROGRAM(ConsumerReturnsEarly, 1),
    GUMP_PROGRAM(CallbackAgainstEvent, 2),
    GUMP_PROGRAM(SendBeforeStart, 1),
    GUMP_PROGRAM(LockIsNotReleased, 1),
    GUMP_PROGRAM(LockTwice, 1),
    GUMP_PROGRAM(AskAfterStop, 1),
    GUMP_PROGRAM(StopUnderLock, 2),
    GUMP_PROGRAM(TokenKeeper, 3),
    GUMP_PROGRAM(ChannelIsReplaced, 1),
    GUMP_PROGRAM(ResultNobodyWantsAnyMore, 1),
    GUMP_PROGRAM(ReadersOfAClosedTransport, 3),
    GUMP_PROGRAM(WatcherOfAClosedBalancer, 1),
    GUMP_PROGRAM(SignalIsLost, 1),
    GUMP_PROGRAM(WaitUnderLock, 3),
    GUMP_PROGRAM(OneDoneIsMissing, 1),
    GUMP_PROGRAM(CollectorHasGone, 2),
    GUMP_PROGRAM(ReportToOneself, 1),
    GUMP_PROGRAM(BroadcastComesTooLate, 2),
    GUMP_PROGRAM(ErrorIsNotRead, 2),
    GUMP_PROGRAM(NotifyUnderLock, 2),
    GUMP_PROGRAM(QueueIsNotShutDown, 2),
    GUMP_PROGRAM(TicksWithoutReader, 1),
    GUMP_PROGRAM(NestedPools, 2),
    GUMP_PROGRAM(ProgressIsNotRead, 2),
    GUMP_PROGRAM(FollowerAndWatcher, 2),
    GUMP_PROGRAM(MonitorStopsItself, 2),
    GUMP_PROGRAM(SlotIsHeld, 3),
    GUMP_PROGRAM(DispatcherClosesItself, 1),
};

}  // namespace

absl::Span<const LeakProgram> ProjectLeaks() { return kProjects; }

}  // namespace gump::gotest
