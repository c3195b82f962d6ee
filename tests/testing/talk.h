// Goroutines that keep entering the runtime, for tests of events that they must
// survive.
#ifndef TESTS_TESTING_TALK_H_
#define TESTS_TESTING_TALK_H_

#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/sync.h"

namespace gump::testing {

// Talk makes two goroutines exchange n values.
inline void Talk(int n) {
  auto there = make_chan<int>();
  auto back = make_chan<int>();
  sync::WaitGroup wg;
  wg.Go([=] {
    for (int v : there) back.Send(v + 1);
  });
  for (int i = 0; i < n; i++) {
    there.Send(i);
    EXPECT_EQ(back.Recv(), i + 1);
  }
  there.Close();
  wg.Wait();
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_TALK_H_
