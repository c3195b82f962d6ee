// runtime::Stack when memory is short. The program's operator new refuses large
// requests.
#include "gump/runtime.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>

#include "gump/chan.h"
#include "gump/go.h"
#include "gump/sync.h"
#include "tests/testing/parked.h"

namespace gump {
namespace {

std::atomic<size_t> largest{SIZE_MAX};  // that operator new gives

}  // namespace
}  // namespace gump

void* operator new(size_t n) {
  void* const p = n > gump::largest ? nullptr : std::malloc(n);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace gump {
namespace {

// Parked has goroutines that wait until it goes.
class Parked {
 public:
  ~Parked() {
    gate_.Close();
    wg_.Wait();
  }
  // More has n more of them park.
  void More(size_t n) {
    for (size_t i = 0; i < n; i++) {
      wg_.Go([gate = gate_] { (void)gate.Recv(); });
    }
    n_ += n;
    EXPECT_TRUE(testing::EventuallyParked("chan receive", n_));
  }

 private:
  chan<void> gate_ = make_chan<void>();
  sync::WaitGroup wg_;
  size_t n_ = 0;
};

// FarBelowAPowerOfTwo has goroutines park until the size of the text of all is
// far below a power of two, and returns that size.
size_t FarBelowAPowerOfTwo(Parked* parked) {
  for (;;) {
    parked->More(20);
    const size_t size = runtime::Stack(true).size();
    const size_t above = std::bit_ceil(size);
    if (size > size_t{32} << 10 && size > above / 16 * 9 &&
        size < above / 16 * 11) {
      return size;
    }
  }
}

// The frames of the caller differ from call to call.
constexpr size_t kSlack = 1024;

TEST(StackMemoryTest, TextThatFits_NeedsNoMemoryForTwice) {
  gump::Run([] {
    Parked parked;
    const size_t size = FarBelowAPowerOfTwo(&parked);
    largest = size + kSlack;
    std::string text;
    EXPECT_NO_THROW(text = runtime::Stack(true));
    largest = SIZE_MAX;
    EXPECT_GT(text.size() + kSlack, size);
    EXPECT_TRUE(text.ends_with('\n'));
    EXPECT_EQ(text.find('\0'), std::string::npos);
  });
}

TEST(StackMemoryTest, TextThatDoesNotFit_IsBadAlloc) {
  gump::Run([] {
    Parked parked;
    largest = FarBelowAPowerOfTwo(&parked) / 2;
    EXPECT_THROW((void)runtime::Stack(true), std::bad_alloc);
    largest = SIZE_MAX;
  });
}

}  // namespace
}  // namespace gump
