// HOOKS: what the interposer costs a thread that uses no hooks. The calls of
// this program go to the interposer, and those by address to libc.
#include <dlfcn.h>
#include <gump/hooks.h>
#include <pthread.h>

#include <algorithm>
#include <climits>
#include <thread>

#include "tools/bench/harness.h"

namespace gump::bench {
namespace {

using LockFunction = int (*)(pthread_mutex_t*);

LockFunction OfLibc(void* libc, const char* name) {
  return reinterpret_cast<LockFunction>(dlsym(libc, name));
}

// PairNanos is the time of a lock and an unlock that meet no other thread. It
// is the least of many short runs, which interrupts do not touch.
double PairNanos(LockFunction lock, LockFunction unlock) {
  constexpr int kPairs = 2000;
  constexpr int kRuns = 500;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  int64_t least = INT64_MAX;
  for (int r = 0; r < kRuns; r++) {
    const int64_t begin = NowNanos();
    for (int i = 0; i < kPairs; i++) {
      lock(&mutex);
      unlock(&mutex);
    }
    least = std::min(least, NowNanos() - begin);
  }
  return static_cast<double>(least) / kPairs;
}

void Mutexes(const Options& o) {
  if (!o.Selected("HOOKS/mutex")) return;
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  for (int r = 0; r < o.reps; r++) {
    double raw = 0;
    double ours = 0;
    std::thread([&] {
      raw = PairNanos(OfLibc(libc, "pthread_mutex_lock"),
                      OfLibc(libc, "pthread_mutex_unlock"));
      ours = PairNanos(pthread_mutex_lock, pthread_mutex_unlock);
    }).join();
    Print("HOOKS/mutex", "raw-ns", raw);
    Print("HOOKS/mutex", "ns/pair", ours);
    Print("HOOKS/mutex", "over-ns", ours - raw);
  }
}

}  // namespace
}  // namespace gump::bench

int main(int argc, char** argv) {
  using namespace gump::bench;
  const Options o = ParseOptions(argc, argv);
  return gump::Run([&] {
    const gump::hooks::Scope scope;  // a home exists, and counts locks
    Mutexes(o);
  });
}
