// Coroutines of another library: one that runs until it waits, and is destroyed
// by its owner, and a thread that resumes coroutines.
#ifndef TESTS_TESTING_OWNED_COROUTINE_H_
#define TESTS_TESTING_OWNED_COROUTINE_H_

#include <atomic>
#include <condition_variable>
#include <coroutine>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace gump::testing {

// OwnedCoroutine starts at once. It knows nothing of gumption. Its owner
// destroys it while it waits, or once Ended() returns true.
class OwnedCoroutine {
 public:
  struct promise_type;
  struct Final {
    bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<promise_type> h) noexcept {
      // The owner may destroy the frame as soon as it sees the flag.
      const std::shared_ptr<std::atomic<bool>> ended = h.promise().ended;
      ended->store(true, std::memory_order_release);
    }
    void await_resume() noexcept {}
  };
  struct promise_type {
    std::shared_ptr<std::atomic<bool>> ended =
        std::make_shared<std::atomic<bool>>(false);
    OwnedCoroutine get_return_object() {
      return OwnedCoroutine(Handle::from_promise(*this));
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    Final final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  using Handle = std::coroutine_handle<promise_type>;

  OwnedCoroutine(OwnedCoroutine&& o) noexcept
      : h_(std::exchange(o.h_, nullptr)), ended_(o.ended_) {}
  ~OwnedCoroutine() { Destroy(); }
  void Destroy() {
    if (h_) std::exchange(h_, nullptr).destroy();
  }
  bool Ended() const { return ended_->load(std::memory_order_acquire); }

 private:
  explicit OwnedCoroutine(Handle h) : h_(h), ended_(h.promise().ended) {}
  Handle h_;
  std::shared_ptr<std::atomic<bool>> ended_;
};

// Start runs an awaitable until it waits.
template <class A>
OwnedCoroutine Start(A a) {
  (void)co_await std::move(a);
}

// ThreadExecutor is a thread that resumes the coroutines that await it.
class ThreadExecutor {
 public:
  ThreadExecutor() : thread_([this] { Loop(); }) {}
  ~ThreadExecutor() {
    {
      std::lock_guard hold(mu_);
      stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  struct Awaiter {
    ThreadExecutor* executor;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) { executor->Call(h); }
    void await_resume() const noexcept {}
  };
  Awaiter operator co_await() noexcept { return {this}; }
  std::thread::id id() const { return thread_.get_id(); }
  // Call calls f on the thread.
  void Call(std::function<void()> f) {
    // Notifies under the lock, because the executor may be gone once f has run.
    std::lock_guard hold(mu_);
    ready_.push_back(std::move(f));
    changed_.notify_one();
  }

 private:
  void Loop() {
    std::unique_lock hold(mu_);
    for (;;) {
      changed_.wait(hold, [&] { return stop_ || !ready_.empty(); });
      if (ready_.empty()) return;
      std::function<void()> f = std::move(ready_.front());
      ready_.pop_front();
      hold.unlock();
      f();
      hold.lock();
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> ready_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace gump::testing

#endif  // TESTS_TESTING_OWNED_COROUTINE_H_
