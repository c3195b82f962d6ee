// The base of the generated programs (generate.py). Its Go twin is prelude.go.
//
// A program prints its findings in alphabetical order, because the order in
// which its goroutines found them is chance. Then it ends as its seed says.
#ifndef TESTS_DIFF_PRELUDE_H_
#define TESTS_DIFF_PRELUDE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gump/gump.h"

using namespace gump;  // NOLINT: programs as a user might write them

using I = int64_t;
using C = chan<I>;
using V = chan<void>;
using WG = std::shared_ptr<sync::WaitGroup>;
inline WG NewWG() { return std::make_shared<sync::WaitGroup>(); }

// Lock guards n. x and y are equal whenever the lock is free.
struct Lock {
  sync::Mutex mu;
  sync::RWMutex rw;
  sync::Cond cond{mu};
  sync::Once once;
  I n = 0, x = 0, y = 0;
  bool done = false;
  std::vector<I> queue;
  std::map<I, I> table;
};
using L = std::shared_ptr<Lock>;
inline L NewLock() { return std::make_shared<Lock>(); }

struct Request {
  I v;
  C reply;
};
using R = chan<Request>;

// A Task is a function to be called once. This and the types below keep the
// compiler from making the library's templates anew for every lambda. A program
// has twenty of them, and there are thousands of programs.
class Task {
 public:
  template <class F>
  Task(F f)  // NOLINT(google-explicit-constructor): from a lambda
      : f_(new F(static_cast<F&&>(f))), call_([](void* p) {
          struct Owned {
            F* f;
            ~Owned() { delete f; }
          } owned{static_cast<F*>(p)};
          (*owned.f)();
        }) {}
  void operator()() const { call_(f_); }

 private:
  void* f_;
  void (*call_)(void*);
};

void Go(Task t);
void GoIn(const WG& w, Task t);
time::Timer After(absl::Duration d, Task t);

// A Handler refers to a lambda of the same statement.
template <class... A>
class HandlerOf {
 public:
  template <class F>
  HandlerOf(const F& f)  // NOLINT(google-explicit-constructor): as above
      : f_(&f), call_([](const void* p, A... a) {
          (*static_cast<const F*>(p))(a...);
        }) {}
  void operator()(A... a) const { call_(f_, a...); }

 private:
  const void* f_;
  void (*call_)(const void*, A...);
};
using Handler = HandlerOf<>;
using ValueHandler = HandlerOf<I, bool>;
inline auto OnRecv(const C& c, ValueHandler f) { return Recv(c, f); }
inline auto OnSend(const C& c, const I& v, Handler f) { return Send(c, v, f); }
inline auto OnDone(const recv_chan<void>& c, Handler f) { return Recv(c, f); }
inline auto OnTime(const recv_chan<absl::Time>& c, Handler f) {
  return Recv(c, f);
}
inline auto Otherwise(Handler f) { return Default(f); }

class Out {
 public:
  void Emit(int tag, I v) { Text(tag, std::to_string(v)); }
  void Text(int tag, const std::string& v) {
    mu_.Lock();
    lines_.push_back(std::to_string(tag) + " " + v);
    mu_.Unlock();
  }
  // Caught emits the text of the panic that f ends with.
  void Caught(int tag, Handler f) {
    try {
      f();
      Text(tag, "no panic");
    } catch (const PanicError& e) {
      Text(tag, e.what());
    }
  }
  void Print() {
    mu_.Lock();
    std::sort(lines_.begin(), lines_.end());
    for (const std::string& line : lines_) std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    mu_.Unlock();
  }

 private:
  sync::Mutex mu_;
  std::vector<std::string> lines_;
};

struct Program {
  int seed;
  void (*run)(Out& out);
};
extern const Program kPrograms[];
extern const int kProgramCount;

#endif  // TESTS_DIFF_PRELUDE_H_
