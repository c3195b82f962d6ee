// Trades with locks, groups and containers. Most are shared by all workers of a
// round, goroutines and plain threads.
#include "gump/sync.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <shared_mutex>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gump/context.h"
#include "gump/defer.h"
#include "gump/panic.h"
#include "gump/runtime.h"
#include "gump/time.h"
#include "tests/stress/soak/soak.h"

namespace gump::soak {
namespace {

// Money moves between accounts, each under a lock of its own. A goroutine that
// holds the books finds that the sum has not changed.
class MutexTrade : public Trade {
 public:
  MutexTrade() { balance_.fill(kEach); }

  void Piece(Rng& rng) override {
    for (int i = 0; i < 20; i++) {
      if (rng.OneIn(10)) {
        const std::unique_lock hold(books_);
        EXPECT_EQ(Total(), kAccounts * kEach);
        Pause(rng);
      } else {
        Move(rng);
      }
    }
  }
  void Close() override { EXPECT_EQ(Total(), kAccounts * kEach); }

 private:
  static constexpr size_t kAccounts = 6;
  static constexpr uint64_t kEach = 1000;

  void Move(Rng& rng) {
    const std::shared_lock open(books_);
    const size_t from = rng.Below(kAccounts);
    const size_t to = rng.Below(kAccounts);
    if (from == to) return;
    const std::scoped_lock hold(mu_[std::min(from, to)],
                                mu_[std::max(from, to)]);
    const uint64_t amount = rng.Below(balance_[from] + 1);
    balance_[from] -= amount;
    Pause(rng);
    balance_[to] += amount;
  }
  uint64_t Total() const {
    return std::accumulate(balance_.begin(), balance_.end(), uint64_t{0});
  }

  sync::RWMutex books_;
  std::array<sync::Mutex, kAccounts> mu_;  // of each account, below books_
  std::array<uint64_t, kAccounts> balance_;
};

// A store with room for three. Each worker leaves as many parcels as it
// fetches.
class CondTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    const uint64_t n = rng.Below(20);
    sync::WaitGroup wg;
    wg.Go([this, n, seed = rng.Next()] {
      Rng own(seed);
      for (uint64_t i = 0; i < n; i++) Put(Parcel(own.Next()));
    });
    for (uint64_t i = 0; i < n; i++) {
      balance_.Out(Take());
      Pause(rng);
    }
    wg.Wait();
  }
  void Close() override {
    EXPECT_TRUE(store_.empty());
    balance_.Check();
  }

 private:
  void Put(Parcel p) {
    const std::scoped_lock hold(mu_);
    not_full_.Wait([this] { return store_.size() < 3; });
    balance_.In(p.tag());
    store_.push_back(std::move(p));
    not_empty_.Signal();
  }
  Parcel Take() {
    const std::scoped_lock hold(mu_);
    not_empty_.Wait([this] { return !store_.empty(); });
    Parcel p = std::move(store_.front());
    store_.pop_front();
    not_full_.Broadcast();
    return p;
  }

  Balance balance_;
  sync::Mutex mu_;
  sync::Cond not_full_{mu_}, not_empty_{mu_};
  std::deque<Parcel> store_;  // guarded by mu_
};

// Tasks return, panic or exit, and each has the effects that it should.
class TaskTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    std::atomic<uint64_t> ended = 0;
    uint64_t begun = 0;
    sync::WaitGroup wg;
    for (uint64_t n = rng.Below(20); n > 0; n--, begun++) {
      wg.Go([&ended, seed = rng.Next(), p = Parcel(rng.Next())] {
        const defer count{[&] { ended++; }};
        EXPECT_TRUE(p.Whole());
        Task(seed);
      });
    }
    wg.Wait();
    EXPECT_EQ(ended, begun);
  }

 private:
  static void Task(uint64_t seed) {
    Rng rng(seed);
    const defer park{[&] { Pause(rng); }};
    Pause(rng);
    switch (rng.Below(3)) {
      case 0:
        runtime::Goexit();
      case 1:
        try {
          const defer park_unwinding{[&] { Pause(rng); }};
          panic("task");
        } catch (const PanicError& e) {
          Pause(rng);
          EXPECT_STREQ(e.what(), "task");
        }
        break;
      default:
        break;
    }
  }
};

// A once runs its function once, and all callers get its result.
class OnceTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    std::atomic<int> runs = 0;
    std::atomic<int> failures = 0;
    const uint64_t tag = rng.Next();
    const auto value = sync::OnceValue([&runs, tag] {
      runs++;
      runtime::Gosched();
      return tag;
    });
    const auto fails = sync::OnceFunc([&runs] {
      runs++;
      throw std::runtime_error("once");
    });
    sync::Once once;
    sync::WaitGroup wg;
    Crowd(rng, 6, wg, [&](Rng& own) {
      Pause(own);
      once.Do([&] {
        Pause(own);
        runs++;
      });
      EXPECT_EQ(value(), tag);
      try {
        fails();
      } catch (const std::runtime_error& e) {
        EXPECT_STREQ(e.what(), "once");
        failures++;
      }
      failures--;
    });
    wg.Wait();
    EXPECT_EQ(runs, 3);
    EXPECT_EQ(failures, 0);
  }
};

// An item that a pool gives out belongs to one caller.
class PoolTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    std::vector<std::unique_ptr<Item>> mine;
    const uint64_t tag = rng.Next();
    for (uint64_t n = rng.Below(40); n > 0; n--) {
      mine.push_back(pool_.Get());
      EXPECT_TRUE(mine.back()->parcel.Whole());
      EXPECT_EQ(std::exchange(mine.back()->owner, tag), 0u);
    }
    Pause(rng);
    for (auto& item : mine) {
      EXPECT_EQ(std::exchange(item->owner, 0), tag);
      if (!rng.OneIn(8)) pool_.Put(std::move(item));
    }
  }

 private:
  struct Item {
    Parcel parcel{7};
    uint64_t owner = 0;
  };
  sync::Pool<Item> pool_{[] { return std::make_unique<Item>(); }};
};

// An item that is added to a map is in it, or was taken out.
class MapTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    for (int i = 0; i < 50; i++) {
      const uint64_t k = rng.Below(40);
      switch (rng.Below(4)) {
        case 0:
          if (!map_.LoadOrStore(k, 1).second) added_++;
          break;
        case 1: {
          const std::optional<uint64_t> old = map_.Load(k);
          if (old && map_.CompareAndSwap(k, *old, *old + 1)) added_++;
          break;
        }
        case 2:
          if (auto old = map_.LoadAndDelete(k)) removed_ += *old;
          break;
        default:
          map_.Range([](uint64_t key, uint64_t v) {
            EXPECT_LT(key, 40u);
            EXPECT_GT(v, 0u);
          });
          break;
      }
    }
  }
  void Close() override {
    uint64_t left = 0;
    map_.Range([&](uint64_t, uint64_t v) { left += v; });
    EXPECT_EQ(left + removed_, added_);
  }

 private:
  sync::Map<uint64_t, uint64_t> map_;
  std::atomic<uint64_t> added_ = 0, removed_ = 0;
};

// No more units are out than there are, even if some waiters give up.
class SemaphoreTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    const auto n = static_cast<int64_t>(1 + rng.Below(kUnits));
    if (rng.OneIn(2)) {
      const auto [ctx, cancel] =
          context::WithTimeout(context::Background(), Short(rng));
      const absl::Status s = units_.Acquire(ctx, n);
      cancel();
      if (!s.ok()) {
        EXPECT_EQ(s.code(), absl::StatusCode::kDeadlineExceeded);
        return;
      }
    } else {
      units_.Acquire(n);
    }
    EXPECT_LE(out_ += n, kUnits);
    Pause(rng);
    out_ -= n;
    units_.Release(n);
  }
  void Close() override { EXPECT_TRUE(units_.TryAcquire(kUnits)); }

 private:
  static constexpr int64_t kUnits = 5;
  sync::Semaphore units_{kUnits};
  std::atomic<int64_t> out_ = 0;
};

// The first error of a group ends the functions that wait for its context.
class GroupTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    sync::ErrGroup::GroupAndContext g =
        sync::ErrGroup::WithContext(context::Background());
    std::atomic<uint64_t> active = 0;
    std::atomic<uint64_t> ended = 0;
    uint64_t begun = 1;
    const uint64_t limit = 2 + rng.Below(4);
    g.group.SetLimit(static_cast<int>(limit));
    // The functions below may wait for the end of this one. So it is started
    // first, while the limit certainly has a place for it.
    g.group.Go([&, d = Short(rng)] {
      active++;
      time::Sleep(d);
      active--;
      ended++;
      return absl::DataLossError("first");
    });
    for (uint64_t n = rng.Below(10); n > 0; n--, begun++) {
      g.group.Go([&, seed = rng.Next()] {
        Rng own(seed);
        EXPECT_LE(++active, limit);
        if (own.OneIn(2)) g.ctx.Done().Recv();
        Pause(own);
        active--;
        ended++;
        return g.ctx.Err();  // OK, or a later error
      });
    }
    EXPECT_EQ(g.group.Wait(), absl::DataLossError("first"));
    EXPECT_EQ(context::Cause(g.ctx), absl::DataLossError("first"));
    EXPECT_EQ(ended, begun);
  }
};

// Of all calls with one key, one runs at a time.
class FlightTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    const size_t key = rng.Below(kKeys);
    try {
      const auto got = flight_.Do(key, [&] {
        EXPECT_EQ(active_[key]++, 0);
        Pause(rng);
        active_[key]--;
        if (key == kFails) std::rethrow_exception(error_);
        return std::make_shared<Parcel>(key);
      });
      EXPECT_NE(key, kFails);
      EXPECT_TRUE(got.value->Whole());
      EXPECT_EQ(got.value->tag(), key);
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "flight");
      EXPECT_EQ(key, kFails);
    }
  }

 private:
  static constexpr size_t kKeys = 4;
  static constexpr size_t kFails = 3;
  // Lives as long as this object. ThreadSanitizer does not see how libstdc++
  // counts references, and would report a race when the last one is dropped.
  const std::exception_ptr error_ =
      std::make_exception_ptr(std::runtime_error("flight"));
  sync::SingleFlight<size_t, std::shared_ptr<Parcel>> flight_;
  std::array<std::atomic<int>, kKeys> active_{};
};

// An item that is put into a container comes out once.
class ContainerTrade : public Trade {
 public:
  void Piece(Rng& rng) override {
    for (uint64_t n = rng.Below(30); n > 0; n--) {
      Parcel p(rng.Next());
      balance_.In(p.tag());
      switch (rng.Below(3)) {
        case 0:
          queue_.Push(std::move(p));
          break;
        case 1:
          stack_.Push(std::move(p));
          break;
        default:
          InList(rng, std::move(p));
          break;
      }
      if (rng.OneIn(2)) TakeOne(rng.Below(3));
      Pause(rng);
    }
  }
  void Close() override {
    for (uint64_t where = 0; where < 3; where++) {
      while (TakeOne(where)) {
      }
    }
    EXPECT_EQ(list_.Len(), 0u);
    balance_.Check();
  }

 private:
  void InList(Rng& rng, Parcel p) {
    const auto e = rng.OneIn(2) ? list_.PushBack(std::move(p))
                                : list_.PushFront(std::move(p));
    if (rng.OneIn(4)) {
      list_.Range([](const Parcel& other) { EXPECT_TRUE(other.Whole()); });
    }
    if (rng.OneIn(2) && list_.Remove(e)) balance_.Out(*e);
  }
  // TakeOne takes one item out. Returns false if there was none.
  bool TakeOne(uint64_t where) {
    if (where == 2) {
      const auto e = list_.PopFront();
      if (e) balance_.Out(*e);
      return static_cast<bool>(e);
    }
    const std::optional<Parcel> p = where == 0 ? queue_.Pop() : stack_.Pop();
    if (p.has_value()) balance_.Out(*p);
    return p.has_value();
  }

  Balance balance_;
  sync::Queue<Parcel> queue_;
  sync::Stack<Parcel> stack_;
  sync::List<Parcel> list_;
};

constexpr TradeMaker kTrades[] = {
    MakeTrade<MutexTrade>,     MakeTrade<CondTrade>,  MakeTrade<TaskTrade>,
    MakeTrade<OnceTrade>,      MakeTrade<PoolTrade>,  MakeTrade<MapTrade>,
    MakeTrade<SemaphoreTrade>, MakeTrade<GroupTrade>, MakeTrade<FlightTrade>,
    MakeTrade<ContainerTrade>,
};

}  // namespace

std::span<const TradeMaker> SyncTrades() { return kTrades; }

}  // namespace gump::soak
