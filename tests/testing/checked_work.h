// Pieces of work that keep their state where a preemption could spoil it, each
// with a result that can be known beforehand: registers of every kind, rounding
// modes, string instructions, malloc's lists, locks of libc's, exceptions in
// flight, errno and thread-locals, setjmp buffers.
//
// A step never enters the runtime and takes about a millisecond.
#ifndef TESTS_TESTING_CHECKED_WORK_H_
#define TESTS_TESTING_CHECKED_WORK_H_

#include <cstdint>
#include <span>

namespace gump::testing {

struct CheckedWork {
  const char* name;
  // step returns what it has made of seed: always the same.
  uint64_t (*step)(uint64_t seed);
};

// AllCheckedWork is all of them that this machine can do.
std::span<const CheckedWork> AllCheckedWork();

}  // namespace gump::testing

#endif  // TESTS_TESTING_CHECKED_WORK_H_
