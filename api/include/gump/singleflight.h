// sync::SingleFlight: calls with the same key at the same time become one.
//
//   sync::SingleFlight<std::string, Page> flight;
//   // In any number of goroutines: one fetches, the others wait for it.
//   auto [page, shared] = flight.Do(url, [&] { return Fetch(url); });
//
// The function that is called is the one of the first caller; those who come
// while it runs wait and get copies of its value. What it throws is thrown to
// each of them, and if it calls Goexit, each of them does. It runs without any
// lock of ours and may use the same SingleFlight with another key.
//
// K needs to be copyable, hashable and comparable, V copyable and nothrow-move-
// constructible; large values are best kept in a shared_ptr. SingleFlight is
// never copied or moved. It may be destroyed when every Do has returned and
// every channel of DoChan has delivered.
//
// Memory ordering: the return of the function happens before the return of
// every Do, and of every receive, that has its value.
//
// Source: golang.org/x/sync/singleflight.
#ifndef GUMP_SINGLEFLIGHT_H_
#define GUMP_SINGLEFLIGHT_H_

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/mutex.h"
#include "gump/runtime.h"
#include "gump/waitgroup.h"

namespace gump::sync {

// SingleFlightResult is what Do returns. shared: somebody else got this value
// as well.
template <class V>
struct SingleFlightResult {
  V value;
  bool shared;
};

template <class V>
class SingleFlightOutcome;

namespace internal {

// FlightCall is one call of a user's function. The first four do not change any
// more once wg is done.
template <class V>
struct FlightCall {
  std::optional<V> value;
  std::exception_ptr error;  // neither this nor value: it called Goexit
  bool shared = false;       // guarded by the flight's mutex until then
  std::vector<chan<SingleFlightOutcome<V>>> chans;  // likewise
  WaitGroup wg;
};

}  // namespace internal

// SingleFlightOutcome is what the channel of DoChan delivers. A value, cheap to
// copy; copies refer to the same V.
template <class V>
class SingleFlightOutcome {
 public:
  // Whether somebody else got this outcome as well.
  [[nodiscard]] bool shared() const noexcept { return call_->shared; }
  // What the function threw, or null.
  [[nodiscard]] std::exception_ptr error() const noexcept {
    return call_->error;
  }
  // What the function returned; throws what it threw. Lives as long as this.
  [[nodiscard]] const V& value() const {
    if (call_->error) std::rethrow_exception(call_->error);
    return *call_->value;
  }

 private:
  template <class K, class U, class Hash, class Eq>
  friend class SingleFlight;
  using Call = internal::FlightCall<V>;
  explicit SingleFlightOutcome(std::shared_ptr<const Call> call) noexcept
      : call_(std::move(call)) {}

  std::shared_ptr<const Call> call_;
};

// SingleFlight is described above. All functions may be called from goroutines
// and from plain threads (Goexit excepted, which is not for plain threads).
template <class K, class V,
          class Hash = typename absl::flat_hash_map<K, V>::hasher,
          class Eq = typename absl::flat_hash_map<K, V>::key_equal>
class SingleFlight {
  static_assert(std::is_copy_constructible_v<V> &&
                    std::is_nothrow_move_constructible_v<V>,
                "gump::sync::SingleFlight<K, V>: V is copied to every caller; "
                "use a std::shared_ptr<const V> for one that cannot be");

 public:
  using Result = SingleFlightResult<V>;
  using Outcome = SingleFlightOutcome<V>;

  SingleFlight() = default;
  SingleFlight(const SingleFlight&) = delete;
  SingleFlight& operator=(const SingleFlight&) = delete;

  // Do calls f(), or waits for the call with this key that is going on, and
  // returns the value. Parks. Throws what f throws, and std::bad_alloc.
  template <class F>
  Result Do(const K& key, F&& f) {
    const K own(key);  // f may change the caller's
    auto [call, first] = Join(own, nullptr);
    if (!first) {
      call->wg.Wait();
      if (call->error) std::rethrow_exception(call->error);
      if (!call->value.has_value()) runtime::Goexit();
      return {*call->value, true};
    }
    Execute(own, call, f);
    return {*call->value, call->shared};
  }

  // DoChan is Do in a goroutine of its own, if f is to be called at all; the
  // channel delivers the outcome, once. What f throws is in the outcome; if f
  // calls Goexit, the channel is closed. f is decay-copied. Never parks for
  // long. Panics if no goroutine can be started; throws std::bad_alloc.
  //
  // An Outcome is not default-constructible, so a select receives an optional:
  //
  //   using Flight = sync::SingleFlight<std::string, Page>;
  //   Flight flight;
  //   select(Recv(flight.DoChan(url, [url] { return Fetch(url); }),
  //               [&](std::optional<Flight::Outcome> o) {
  //                 if (o) page = o->value();  // empty: it called Goexit
  //               }),
  //          Recv(ctx.Done(), [] { ... }));  // the call goes on
  template <class F>
  [[nodiscard]] recv_chan<Outcome> DoChan(const K& key, F&& f) {
    chan<Outcome> out = make_chan<Outcome>(1);
    auto [call, first] = Join(key, &out);
    if (!first) return out;
    try {
      gump::go([this, key, c = call,
                fn = std::decay_t<F>(std::forward<F>(f))]() mutable {
        try {
          Execute(key, c, fn);
        } catch (...) {
          // Not an exception but a Goexit: let it pass.
          if (!std::current_exception()) throw;
        }
      });
    } catch (...) {
      call->error = std::current_exception();
      Land(key, call);
      throw;
    }
    return out;
  }

  // Forget makes the next Do with this key call its function, whether or not a
  // call is going on.
  void Forget(const K& key) {
    std::shared_ptr<Call> call;  // dropped outside the lock
    mu_.Lock();
    auto it = calls_.find(key);
    if (it != calls_.end()) {
      call = std::move(it->second);
      calls_.erase(it);
    }
    mu_.Unlock();
  }

 private:
  using Call = internal::FlightCall<V>;
  struct Ticket {
    std::shared_ptr<Call> call;
    bool first;
  };

  // Join returns the call for key, which is to be executed by who is first. The
  // outcome will be sent to *out, if given.
  Ticket Join(const K& key, const chan<Outcome>* out) {
    std::scoped_lock hold(mu_);
    auto [it, first] = calls_.try_emplace(key);
    if (first) {
      try {
        it->second = std::make_shared<Call>();
        if (out != nullptr) it->second->chans.push_back(*out);
      } catch (...) {
        calls_.erase(it);
        throw;
      }
      it->second->wg.Add(1);
    } else {
      if (out != nullptr) it->second->chans.push_back(*out);
      it->second->shared = true;
    }
    return {it->second, first};
  }

  // Execute calls f for everybody who waits for the call. What f throws, or a
  // Goexit, passes through when they have been told.
  template <class F>
  void Execute(const K& key, const std::shared_ptr<Call>& call, F& f) {
    struct LandAtEnd {
      SingleFlight* flight;
      const K& key;
      const std::shared_ptr<Call>& call;
      ~LandAtEnd() noexcept(false) { flight->Land(key, call); }
    } at_end{this, key, call};
    try {
      call->value.emplace(std::invoke(f));
    } catch (...) {
      call->error = std::current_exception();  // null if it is a Goexit
      throw;
    }
  }

  // Land ends the call: nobody joins it any more, and those who have are told.
  // After the unlock the flight is not touched, which may be gone then.
  void Land(const K& key, const std::shared_ptr<Call>& call) {
    std::shared_ptr<Call> mine = call;
    mu_.Lock();
    auto it = calls_.find(key);
    // Another call, if this one has been forgotten.
    if (it != calls_.end() && it->second == call) calls_.erase(it);
    auto chans = std::exchange(mine->chans, {});
    mu_.Unlock();
    mine->wg.Done();
    const bool goexit = !mine->value.has_value() && !mine->error;
    for (const chan<Outcome>& c : chans) {
      if (goexit) {
        c.Close();
      } else {
        c.Send(Outcome(mine));  // has room
      }
    }
  }

  Mutex mu_;
  // The calls that are going on and not forgotten; guarded by mu_.
  absl::flat_hash_map<K, std::shared_ptr<Call>, Hash, Eq> calls_;
};

}  // namespace gump::sync

#endif  // GUMP_SINGLEFLIGHT_H_
