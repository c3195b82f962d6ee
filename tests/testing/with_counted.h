// A fixture for tests of channels that must not lose or keep an element.
#ifndef TESTS_TESTING_WITH_COUNTED_H_
#define TESTS_TESTING_WITH_COUNTED_H_

#include "gtest/gtest.h"
#include "tests/testing/counted.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {

// WithCounted fails a case that leaves a Counted behind.
class WithCounted : public WithGomaxprocs {
 protected:
  void TearDown() override {
    EXPECT_EQ(Counted::values(), 0);
    EXPECT_EQ(Counted::objects(), 0);
  }
};

}  // namespace gump::testing

#endif  // TESTS_TESTING_WITH_COUNTED_H_
