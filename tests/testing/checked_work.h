// Pieces of work that keep their state where a preemption could spoil it, each
// with a result that can be known beforehand. They use registers of every kind,
// rounding modes, string instructions, malloc's lists, locks of libc,
// exceptions in flight, errno and thread-locals, and setjmp buffers.
//
// A step never enters the runtime and takes about a millisecond.
#ifndef TESTS_TESTING_CHECKED_WORK_H_
#define TESTS_TESTING_CHECKED_WORK_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gump::testing {

struct CheckedWork {
  const char* name;
  // step returns a result that depends on nothing but seed.
  uint64_t (*step)(uint64_t seed);
};

// AllCheckedWork returns all pieces that this machine can do.
std::span<const CheckedWork> AllCheckedWork();

// CheckedResults has the result of each step for some seeds. A plain thread
// computes them before there are goroutines. A job is a step with a seed.
class CheckedResults {
 public:
  CheckedResults();
  uint64_t jobs() const { return results_.size(); }
  uint64_t operator[](uint64_t job) const { return results_[job]; }

  static constexpr uint64_t kSeeds = 4;  // of a step; its jobs are in a row
  static uint64_t Step(uint64_t job) { return WorkOf(job).step(job % kSeeds); }
  static std::string NameOf(uint64_t job) {
    return std::string(WorkOf(job).name) + "(" + std::to_string(job % kSeeds) +
           ")";
  }

 private:
  static const CheckedWork& WorkOf(uint64_t job) {
    return AllCheckedWork()[job / kSeeds];
  }
  std::vector<uint64_t> results_;
};

}  // namespace gump::testing

#endif  // TESTS_TESTING_CHECKED_WORK_H_
