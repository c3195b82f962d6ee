// Settings that stress tests share: how long they run, and with which seed.
//
// GUMP_STRESS_SECONDS says how long each test runs. The default is 0.15 s,
// unless the test has another, because there are hundreds of tests in three
// builds. Before a release, and after a change below api/, 60 is better.
// GUMP_STRESS_SEED repeats a seed that a failing test printed.
// GUMP_STRESS_DUMP=1 dumps all goroutines every 10 ms meanwhile
// (stress_dump.cc).
#ifndef TESTS_TESTING_STRESS_H_
#define TESTS_TESTING_STRESS_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GUMP_TESTING_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GUMP_TESTING_SANITIZED
#endif
#endif

namespace gump::testing {

// The number of goroutines at a time that "very many" means. ThreadSanitizer
// cannot follow more than 8,000 fibres, and LeakSanitizer reads every stack.
#if defined(GUMP_TESTING_SANITIZED)
inline constexpr int kManyGoroutines = 2000;
#else
inline constexpr int kManyGoroutines = 100000;
#endif

// Rng is a small generator that each goroutine of a test may have of its own.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}
  uint64_t Next() {  // splitmix64
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Below is uniform in [0, n).
  uint64_t Below(uint64_t n) { return Next() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

 private:
  uint64_t state_;
};

inline uint64_t StressSeed() {
  uint64_t seed = std::random_device()();
  if (const char* s = std::getenv("GUMP_STRESS_SEED")) {
    seed = std::strtoull(s, nullptr, 10);
  }
  std::printf("GUMP_STRESS_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

// StressTime returns how long a test runs, if the environment does not say
// otherwise.
inline std::chrono::nanoseconds StressTime(double seconds = 0.15) {
  if (const char* s = std::getenv("GUMP_STRESS_SECONDS"))
    seconds = std::atof(s);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

// StressLoop calls round(rng) until the time is up, at least once.
template <class F>
void StressLoop(F&& round, double seconds = 0.15) {
  Rng rng(StressSeed());
  auto end = std::chrono::steady_clock::now() + StressTime(seconds);
  do {
    round(rng);
  } while (std::chrono::steady_clock::now() < end);
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_STRESS_H_
