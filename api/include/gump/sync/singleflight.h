// A sync::SingleFlight merges all concurrent calls with the same key into one
// call.
//
//   sync::SingleFlight<std::string, Page> flight;
//   // In any number of goroutines: one fetches, the others wait for it.
//   auto [page, shared] = flight.Do(url, [&] { return Fetch(url); });
//
// SingleFlight calls the function of the first caller. Callers that come while
// it runs wait, and get copies of its value. An exception of the function is
// thrown to each caller. If the function calls Goexit, each caller does so,
// too. The function runs without any lock of the library, and may use the same
// SingleFlight with another key.
//
// Requires: K is copyable, hashable and comparable. V is copyable and
// nothrow-move-constructible. Large values are best kept in a shared_ptr. A
// SingleFlight is never copied or moved.
//
// Requires: a SingleFlight is destroyed only when every Do has returned, and
// every channel of DoChan has delivered or was closed.
//
// Memory ordering: the return of the function happens before the return of
// every Do, and of every receive, that gets its value.
//
// Source: golang.org/x/sync/singleflight.
#ifndef GUMP_SYNC_SINGLEFLIGHT_H_
#define GUMP_SYNC_SINGLEFLIGHT_H_

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/internal/flight_call.h"
#include "gump/runtime.h"
#include "gump/sync/mutex.h"

#pragma GCC visibility push(default)

namespace gump::sync {

template <class V>
struct SingleFlightResult;
template <class V>
class SingleFlightOutcome;

// SingleFlight is described above. All functions may be called from goroutines
// and from plain threads. Requires: on a plain thread the function does not
// call Goexit.
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

  // Do calls f() and returns its value. If a call with this key is going on, Do
  // does not call f: it parks until that call has ended, and returns the value
  // of that call. Throws what the called function throws, and std::bad_alloc.
  template <class F>
  Result Do(const K& key, F&& f);

  // DoChan is Do in a goroutine of its own. If a call with this key is going
  // on, it starts no goroutine. The channel delivers the outcome, once. An
  // exception of the function is in the outcome. If the function calls Goexit,
  // the channel is closed instead. f is decay-copied. DoChan never parks for
  // long. Panics if no goroutine can be started. Throws std::bad_alloc.
  //
  // An Outcome is not default-constructible, so a select receives an optional:
  //
  //   using Flight = sync::SingleFlight<std::string, Page>;
  //   Flight flight;
  //   select(Recv(flight.DoChan(url, [url] { return Fetch(url); }),
  //               [&](std::optional<Flight::Outcome> o) {
  //                 if (o) page = o->value();  // empty if it called Goexit
  //               }),
  //          Recv(ctx.Done(), [] { ... }));  // the call goes on
  template <class F>
  [[nodiscard]] recv_chan<Outcome> DoChan(const K& key, F&& f);

  // Forget makes the next Do with this key call its function, even if a call is
  // going on. Callers that already wait still get the value of that call. Never
  // parks for long.
  void Forget(const K& key);

 private:
  using Call = internal::FlightCall<V>;
  struct Ticket {
    std::shared_ptr<Call> call;
    bool first;
  };

  // Join returns the call for key. If it is new (`first`), the caller has to
  // execute it. The outcome will be sent to *out, if out is not null.
  Ticket Join(const K& key, const chan<Outcome>* out);

  // Execute calls f for all callers that wait for the call. An exception of f,
  // or a Goexit, passes through after the callers have been told.
  template <class F>
  void Execute(const K& key, const std::shared_ptr<Call>& call, F& f);

  // Land ends the call. No caller joins it any more, and the callers that have
  // joined are told. After mu_ is unlocked, Land does not touch the flight,
  // because it may be destroyed then.
  void Land(const K& key, const std::shared_ptr<Call>& call);

  Mutex mu_;
  // The calls that are going on and are not forgotten. Guarded by mu_.
  absl::flat_hash_map<K, std::shared_ptr<Call>, Hash, Eq> calls_;
};

// SingleFlightResult is the result of Do: a copy of the value. shared is true
// if another caller got this value as well.
template <class V>
struct SingleFlightResult {
  V value;
  bool shared;
};

// SingleFlightOutcome is the element of the channel of DoChan. It is a value,
// and cheap to copy. Copies refer to the same V.
template <class V>
class SingleFlightOutcome {
 public:
  // Returns whether another caller got this outcome as well.
  [[nodiscard]] bool shared() const noexcept { return call_->shared; }
  // Returns the exception that the function threw, or null.
  [[nodiscard]] std::exception_ptr error() const noexcept {
    return call_->error;
  }
  // Returns the value of the function, or throws the exception that it threw.
  // The reference is valid as long as this object.
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

template <class K, class V, class Hash, class Eq>
template <class F>
inline typename SingleFlight<K, V, Hash, Eq>::Result
SingleFlight<K, V, Hash, Eq>::Do(const K& key, F&& f) {
  const K own(key);  // f may change the caller's key
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

template <class K, class V, class Hash, class Eq>
template <class F>
inline recv_chan<SingleFlightOutcome<V>> SingleFlight<K, V, Hash, Eq>::DoChan(
    const K& key, F&& f) {
  chan<Outcome> out = make_chan<Outcome>(1);
  auto [call, first] = Join(key, &out);
  if (!first) return out;
  try {
    gump::go([this, key, c = call,
              fn = std::decay_t<F>(std::forward<F>(f))]() mutable {
      try {
        Execute(key, c, fn);
      } catch (...) {
        // A Goexit, which is not an exception, passes through.
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

template <class K, class V, class Hash, class Eq>
inline void SingleFlight<K, V, Hash, Eq>::Forget(const K& key) {
  std::shared_ptr<Call> call;  // dropped outside the lock
  mu_.Lock();
  auto it = calls_.find(key);
  if (it != calls_.end()) {
    call = std::move(it->second);
    calls_.erase(it);
  }
  mu_.Unlock();
}

template <class K, class V, class Hash, class Eq>
inline typename SingleFlight<K, V, Hash, Eq>::Ticket
SingleFlight<K, V, Hash, Eq>::Join(const K& key, const chan<Outcome>* out) {
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

template <class K, class V, class Hash, class Eq>
template <class F>
inline void SingleFlight<K, V, Hash, Eq>::Execute(
    const K& key, const std::shared_ptr<Call>& call, F& f) {
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

template <class K, class V, class Hash, class Eq>
inline void SingleFlight<K, V, Hash, Eq>::Land(
    const K& key, const std::shared_ptr<Call>& call) {
  std::shared_ptr<Call> mine = call;
  mu_.Lock();
  auto it = calls_.find(key);
  // The entry is another call if this one has been forgotten.
  if (it != calls_.end() && it->second == call) calls_.erase(it);
  auto chans = std::exchange(mine->chans, {});
  mu_.Unlock();
  mine->wg.Done();
  const bool goexit = !mine->value.has_value() && !mine->error;
  for (const chan<Outcome>& c : chans) {
    if (goexit) {
      c.Close();
    } else {
      c.Send(Outcome(mine));  // does not park: the channel has room
    }
  }
}

}  // namespace gump::sync

#pragma GCC visibility pop

#endif  // GUMP_SYNC_SINGLEFLIGHT_H_
