#include "tests/testing/with_gomaxprocs.h"

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "gump/go.h"
#include "gump/runtime.h"

namespace gump::testing {

void RunWith(int n, absl::FunctionRef<void()> f) {
  gump::Run([&] {
    runtime::GOMAXPROCS(n);
    f();
  });
}

GomaxprocsValues Gomaxprocs() {
  return ::testing::ValuesIn(std::vector<int>{1, 2, 4, 8});
}

std::string GomaxprocsName(const ::testing::TestParamInfo<int>& info) {
  return "GOMAXPROCS" + std::to_string(info.param);
}

}  // namespace gump::testing
