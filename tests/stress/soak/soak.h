// The trades that the soak mixes (../soak_stress_test.cc). A trade is a kind of
// work with a result that can be checked.
#ifndef TESTS_STRESS_SOAK_SOAK_H_
#define TESTS_STRESS_SOAK_SOAK_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>

#include "gump/runtime.h"
#include "gump/sync.h"
#include "gump/time.h"
#include "tests/testing/counted.h"
#include "tests/testing/stress.h"

namespace gump::soak {

using testing::Rng;

// Trade is one kind of work in one round, for any number of workers.
class Trade {
 public:
  Trade() = default;
  virtual ~Trade() = default;
  Trade(const Trade&) = delete;
  Trade& operator=(const Trade&) = delete;

  // Piece does a piece of work, of a millisecond or so, and checks its result.
  // All that it starts has ended when it returns. Several workers, goroutines
  // and plain threads, may call it at a time.
  virtual void Piece(Rng& rng) = 0;

  // Close ends the trade's own work, when no worker works any more, and checks
  // the result of all workers together.
  virtual void Close() {}
};

// TradeMaker makes a trade, on a goroutine.
using TradeMaker = std::unique_ptr<Trade> (*)();

template <class T>
std::unique_ptr<Trade> MakeTrade() {
  return std::make_unique<T>();
}

// These must be called before there are goroutines.
std::span<const TradeMaker> ChanTrades();
std::span<const TradeMaker> SyncTrades();
std::span<const TradeMaker> IoTrades();
std::span<const TradeMaker> SchedTrades();

// Checksum scrambles one word.
inline uint64_t Checksum(uint64_t v) { return Rng(v).Next(); }

// Parcel is a value that can check whether it has arrived intact. No Parcel may
// be left over.
class Parcel {
 public:
  explicit Parcel(uint64_t tag) : tag_(tag), check_(Checksum(tag)) {}
  uint64_t tag() const { return tag_; }
  bool Whole() const { return life_.full() && check_ == Checksum(tag_); }

 private:
  uint64_t tag_;
  uint64_t check_;
  testing::Counted life_{1};
};

// Balance compares the values that went in with those that came out.
class Balance {
 public:
  void In(uint64_t tag) {
    in_++;
    in_sum_ += tag;
  }
  void Out(uint64_t tag) {
    out_++;
    out_sum_ += tag;
  }
  void Out(const Parcel& p) {
    EXPECT_TRUE(p.Whole()) << p.tag();
    Out(p.tag());
  }
  void Check() const {
    EXPECT_EQ(in_, out_);
    EXPECT_EQ(in_sum_, out_sum_);
  }

 private:
  std::atomic<uint64_t> in_ = 0, in_sum_ = 0, out_ = 0, out_sum_ = 0;
};

// Short is a time that is over soon.
inline std::chrono::nanoseconds Short(Rng& rng) {
  return std::chrono::nanoseconds(rng.Below(rng.OneIn(8) ? 3'000'000 : 50'000));
}

// Pause lets other goroutines run, in one of several ways, or does not.
inline void Pause(Rng& rng) {
  switch (rng.Below(16)) {
    case 0:
      time::Sleep(Short(rng));
      break;
    case 1:
      std::this_thread::yield();
      break;
    case 2:
    case 3:
      runtime::Gosched();
      break;
    default:
      break;
  }
}

// Crowd runs f(rng) in 1 to most goroutines of wg.
template <class F>
void Crowd(Rng& rng, uint64_t most, sync::WaitGroup& wg, F f) {
  for (uint64_t n = 1 + rng.Below(most); n > 0; n--) {
    wg.Go([f, seed = rng.Next()] {
      Rng own(seed);
      f(own);
    });
  }
}

}  // namespace gump::soak

#endif  // TESTS_STRESS_SOAK_SOAK_H_
