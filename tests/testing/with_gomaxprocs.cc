#include "tests/testing/with_gomaxprocs.h"

#include <iterator>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "runtime/sys/sanitizer.h"

namespace gump::testing {

namespace {

// A test takes several times as long with a sanitizer. So the two share the
// values: each value runs with one of them, and one P with both.
#if defined(GUMP_ASAN)
constexpr int kValues[] = {1, 4};
#elif defined(GUMP_TSAN)
constexpr int kValues[] = {1, 2, 8};
#else
constexpr int kValues[] = {1, 2, 4, 8};
#endif

}  // namespace

void RunWith(int n, absl::FunctionRef<void()> f) {
  gump::Run([&] {
    runtime::GOMAXPROCS(n);
    f();
  });
}

GomaxprocsValues Gomaxprocs() {
  return ::testing::ValuesIn(
      std::vector<int>(std::begin(kValues), std::end(kValues)));
}

std::string GomaxprocsName(const ::testing::TestParamInfo<int>& info) {
  return "GOMAXPROCS" + std::to_string(info.param);
}

}  // namespace gump::testing
