#include "gump/runtime/thread.h"

#include <exception>
#include <new>

#include "gump/chan.h"
#include "gump/internal/arch.h"
#include "gump/internal/linkname_panic.h"
#include "gump/internal/spawn.h"

namespace gump::runtime {

Thread::Thread(std::string_view name)
    : home_(rt::newHome(name.data(), name.size())) {
  if (home_ == nullptr) throw std::bad_alloc();
}

}  // namespace gump::runtime

namespace gump::internal {

rt::Home* HomeOf(const runtime::Thread* thread) noexcept {
  return thread == nullptr ? nullptr : thread->home_;
}

namespace {

// Errand is a call that a goroutine makes for a plain thread. It lives on the
// stack of that thread, which waits for `done`.
struct Errand {
  void (*run)(void*);
  void* arg;
  chan<void> done = make_chan<void>(1);
  bool ended = false;  // run has returned or thrown; it has not called Goexit
  std::exception_ptr error = {};
};

// Announce sends on `done`, even if run calls Goexit. It holds the channel
// itself, because the Errand may be gone once the value has been sent.
class Announce {
 public:
  explicit Announce(const Errand& e) : done_(e.done) {}
  ~Announce() { done_.Send(); }
  Announce(const Announce&) = delete;
  Announce& operator=(const Announce&) = delete;

 private:
  chan<void> done_;
};

void Do(Errand* e) {
  Announce announce(*e);
  try {
    e->run(e->arg);
  } catch (...) {
    e->error = std::current_exception();
    if (e->error == nullptr) throw;  // a Goexit passes through
  }
  e->ended = true;
}

}  // namespace

void RunForPlainThread(rt::Home* h, void (*run)(void*), void* arg) {
  Errand e{run, arg};
  rt::SpawnOptions o;
  o.thread = h;
  Spawn<Closure<void (*)(Errand*), Errand*>>(&o, rt::callerPC(), &Do, &e);
  e.done.Recv();
  if (!e.ended) {
    rt::fatalError("runtime.Goexit called on a thread that is not a goroutine");
  }
  if (e.error != nullptr) std::rethrow_exception(e.error);
}

}  // namespace gump::internal
