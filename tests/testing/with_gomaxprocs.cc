#include "tests/testing/with_gomaxprocs.h"

#include "absl/functional/function_ref.h"
#include "gump/go.h"
#include "gump/runtime.h"

namespace gump::testing {

void RunWith(int n, absl::FunctionRef<void()> f) {
  gump::Run([&] {
    runtime::GOMAXPROCS(n);
    f();
  });
}

}  // namespace gump::testing
