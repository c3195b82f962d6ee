#include "runtime/sys/import_slots.h"

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include "runtime/sys/atomic.h"

namespace gump::rt {
namespace {

Atomic<void*> original;
Atomic<void*> missing;

pid_t CountedGetppid() {
  return -reinterpret_cast<pid_t (*)()>(original.load(relaxed))();
}

void MissingFunction() {}

TEST(ImportSlotsTest, CallsReachTheReplacementWhichReachesTheOriginal) {
  const pid_t parent = getppid();
  const Import imports[] = {
      {"getppid", reinterpret_cast<void*>(&CountedGetppid), &original}};
  const Redirected first = redirectImports(imports, 1);
  EXPECT_GE(first.slots, 1U);
  EXPECT_FALSE(first.defined_by_program);
  EXPECT_EQ(getppid(), -parent);
  // Once more changes nothing: the original is found by name, not in a slot.
  EXPECT_EQ(redirectImports(imports, 1).slots, first.slots);
  EXPECT_EQ(getppid(), -parent);
}

TEST(ImportSlotsTest, UnknownFunctionIsLeftOut) {
  const Import imports[] = {{"gump_no_such_function",
                             reinterpret_cast<void*>(&MissingFunction),
                             &missing}};
  EXPECT_EQ(redirectImports(imports, 1).slots, 0U);
  EXPECT_EQ(missing.load(relaxed), nullptr);
}

}  // namespace
}  // namespace gump::rt
