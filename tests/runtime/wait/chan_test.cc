// Channels on bare structs. No goroutine runs, so each operation here is one
// that does not wait, or a step on a locked channel with hand-made waiters.
#include "runtime/wait/chan.h"

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "gump/chan.h"
#include "runtime/sched/runtime2.h"
#include "runtime/wait/select.h"
#include "tests/testing/counted.h"

namespace gump {
namespace {

using rt::ChanResult;
using rt::CloseResult;
using rt::Hchan;
using rt::Sudog;
using testing::Counted;

// Channel owns the one reference to a bare channel of T.
template <class T>
class Channel {
 public:
  explicit Channel(size_t cap)
      : c_(rt::makechan(&internal::kElemType<T>, cap)) {}
  ~Channel() { rt::chanRelease(c_); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  Hchan* operator->() const { return c_; }
  Hchan* get() const { return c_; }

  ChanResult TrySend(T v) { return rt::chansend(c_, &v, false); }
  std::optional<T> TryRecv() {
    std::optional<T> v;
    internal::RecvOptional(c_, v, false);
    return v;
  }

 private:
  Hchan* c_;
};

TEST(MakechanTest, AnUnbufferedChannelHasNoRoom) {
  Channel<int> c(0);
  EXPECT_EQ(rt::chancap(c.get()), 0u);
  EXPECT_EQ(rt::chanlen(c.get()), 0u);
  EXPECT_EQ(c.TrySend(1), ChanResult::kWouldBlock);
  EXPECT_FALSE(c.TryRecv().has_value());
}

TEST(MakechanTest, RefusesAbsurdSizes) {
  const auto* ints = &internal::kElemType<int>;
  EXPECT_EQ(rt::makechan(ints, SIZE_MAX), nullptr);
  EXPECT_EQ(rt::makechan(ints, SIZE_MAX / 2 + 1), nullptr);
  EXPECT_EQ(rt::makechan(ints, rt::kMaxRing + 1), nullptr);
  struct Big {
    char bytes[1 << 20];
  };
  EXPECT_EQ(rt::makechan(&internal::kElemType<Big>, size_t{1} << 31), nullptr);
  EXPECT_EQ(rt::makechan(&internal::kElemType<void>, SIZE_MAX), nullptr);
}

TEST(MakechanTest, EmptyElementsTakeNoRoomHoweverMany) {
  Hchan* c = rt::makechan(&internal::kElemType<void>, PTRDIFF_MAX);
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(rt::chansend(c, nullptr, false), ChanResult::kOk);
  EXPECT_EQ(rt::chanlen(c), 1u);
  EXPECT_EQ(rt::chancap(c), static_cast<size_t>(PTRDIFF_MAX));
  rt::chanRelease(c);
}

template <size_t kAlign>
struct alignas(kAlign) Aligned {
  int n;
};

template <class T>
void ExpectSlotsAligned() {
  Channel<T> c(3);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(c.get()) % rt::kCacheLine, 0u);
  for (uint32_t i = 0; i < 3; i++) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(rt::chanbuf(c.get(), i)) % alignof(T),
              0u);
  }
  EXPECT_EQ(c.TrySend(T{5}), ChanResult::kOk);
  EXPECT_EQ(c.TryRecv()->n, 5);
}

TEST(MakechanTest, AlignsTheRingForItsElements) {
  ExpectSlotsAligned<Aligned<4>>();
  ExpectSlotsAligned<Aligned<16>>();
  ExpectSlotsAligned<Aligned<64>>();
  ExpectSlotsAligned<Aligned<256>>();
  ExpectSlotsAligned<Aligned<4096>>();
}

TEST(MakechanTest, PicksTheCopyByElement) {
  struct Odd {
    char b[3];
  };
  EXPECT_EQ(Channel<int64_t>(0)->kind, rt::ElemKind::kWord8);
  EXPECT_EQ(Channel<float>(0)->kind, rt::ElemKind::kWord4);
  EXPECT_EQ(Channel<std::string_view>(0)->kind, rt::ElemKind::kWord16);
  EXPECT_EQ(Channel<bool>(0)->kind, rt::ElemKind::kWord1);
  EXPECT_EQ(Channel<Odd>(0)->kind, rt::ElemKind::kBytes);
  EXPECT_EQ(Channel<std::string>(0)->kind, rt::ElemKind::kObject);

  EXPECT_TRUE(Channel<int64_t>(0)->fast);
  EXPECT_TRUE(Channel<bool>(1)->fast);
  EXPECT_FALSE(Channel<Odd>(1)->fast);
  EXPECT_FALSE(Channel<std::string>(1)->fast);
}

// Bytes is a trivially copyable element of kSize bytes. Number returns one in
// which each byte depends on n.
template <size_t kSize>
struct Bytes {
  std::array<uint8_t, kSize> b;
  static Bytes Number(int n) {
    Bytes out;
    for (size_t i = 0; i < kSize; i++) {
      out.b[i] = static_cast<uint8_t>(3 * static_cast<size_t>(n) + i);
    }
    return out;
  }
};

template <size_t kSize>
void ExpectCopiedWhole() {
  SCOPED_TRACE(kSize);
  using T = Bytes<kSize>;
  Channel<T> c(3);
  // Around the ring, with a neighbour that must not be overwritten.
  for (int n = 0; n < 10; n++) {
    ASSERT_EQ(c.TrySend(T::Number(n)), ChanResult::kOk);
    ASSERT_EQ(c.TrySend(T::Number(100 + n)), ChanResult::kOk);
    EXPECT_EQ(c.TryRecv()->b, T::Number(n).b);
    EXPECT_EQ(c.TryRecv()->b, T::Number(100 + n).b);
  }
}

TEST(ChanBufferTest, CopiesElementsOfEachSizeWhole) {
  ExpectCopiedWhole<1>();
  ExpectCopiedWhole<2>();
  ExpectCopiedWhole<4>();
  ExpectCopiedWhole<7>();
  ExpectCopiedWhole<8>();
  ExpectCopiedWhole<12>();
  ExpectCopiedWhole<16>();
  ExpectCopiedWhole<17>();
}

TEST(ChanBufferTest, KeepsTheOrderAroundTheRing) {
  Channel<int> c(3);
  int in = 0;
  int out = 0;
  for (int round = 0; round < 10; round++) {
    while (c.TrySend(in) == ChanResult::kOk) in++;
    EXPECT_EQ(rt::chanlen(c.get()), 3u);
    EXPECT_EQ(c.TryRecv(), out++);
    EXPECT_EQ(c.TryRecv(), out++);
  }
  while (auto v = c.TryRecv()) EXPECT_EQ(*v, out++);
  EXPECT_EQ(in, out);
}

TEST(ChanBufferTest, AgreesWithADequeOnRandomOperations) {
  std::mt19937 rng(42);
  Channel<std::string> c(5);
  std::vector<std::string> model;
  for (int i = 0; i < 20000; i++) {
    if (rng() % 2 == 0) {
      std::string v = "value number " + std::to_string(i);
      bool fits = model.size() < 5;
      EXPECT_EQ(c.TrySend(v), fits ? ChanResult::kOk : ChanResult::kWouldBlock);
      if (fits) model.push_back(v);
    } else {
      auto v = c.TryRecv();
      EXPECT_EQ(v.has_value(), !model.empty());
      if (v.has_value()) {
        EXPECT_EQ(*v, model.front());
        model.erase(model.begin());
      }
    }
    EXPECT_EQ(rt::chanlen(c.get()), model.size());
  }
}

TEST(ChanNilTest, NeverProceeds) {
  int v = 7;
  EXPECT_EQ(rt::chansend(nullptr, &v, false), ChanResult::kWouldBlock);
  EXPECT_EQ(rt::chanrecv(nullptr, &v, false), ChanResult::kWouldBlock);
  EXPECT_EQ(v, 7);
  EXPECT_EQ(rt::closechan(nullptr), CloseResult::kNilChannel);
  EXPECT_EQ(rt::chanlen(nullptr), 0u);
  EXPECT_EQ(rt::chancap(nullptr), 0u);
}

TEST(ChanCloseTest, DrainsBeforeItReportsClosed) {
  Channel<int> c(2);
  ASSERT_EQ(c.TrySend(1), ChanResult::kOk);
  ASSERT_EQ(c.TrySend(2), ChanResult::kOk);
  EXPECT_EQ(rt::closechan(c.get()), CloseResult::kOk);
  int v = 0;
  EXPECT_EQ(rt::chanrecv(c.get(), &v, false), ChanResult::kOk);
  EXPECT_EQ(v, 1);
  EXPECT_EQ(rt::chanrecv(c.get(), &v, true), ChanResult::kOk);
  EXPECT_EQ(v, 2);
  EXPECT_EQ(rt::chanrecv(c.get(), &v, true), ChanResult::kClosed);
  EXPECT_EQ(rt::chanrecv(c.get(), &v, false), ChanResult::kClosed);
  EXPECT_EQ(v, 2) << "a closed channel leaves the variable alone";
}

TEST(ChanCloseTest, SendAndCloseAreRefusedAfterwards) {
  Channel<int> c(2);
  EXPECT_EQ(rt::closechan(c.get()), CloseResult::kOk);
  int v = 1;
  EXPECT_EQ(rt::chansend(c.get(), &v, false), ChanResult::kClosed);
  EXPECT_EQ(rt::chansend(c.get(), &v, true), ChanResult::kClosed);
  EXPECT_EQ(rt::closechan(c.get()), CloseResult::kAlreadyClosed);
}

// ---- Lives of elements ------------------------------------------------------

class ChanLivesTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(Counted::values(), 0);
    EXPECT_EQ(Counted::objects(), 0);
  }
};

TEST_F(ChanLivesTest, TheLastReferenceDestroysQueuedValues) {
  {
    Channel<Counted> c(4);
    for (int i = 0; i < 3; i++) (void)c.TrySend(Counted(i));
    (void)c.TryRecv();
    (void)c.TrySend(Counted(3));
    (void)c.TrySend(Counted(4));  // the ring has wrapped
    EXPECT_EQ(Counted::values(), 4);
    EXPECT_EQ(Counted::objects(), 4);
  }
}

TEST_F(ChanLivesTest, TakingAValueDestroysTheShellInItsSlot) {
  Channel<Counted> c(2);
  (void)c.TrySend(Counted(1));
  auto v = c.TryRecv();
  EXPECT_EQ(v->n(), 1);
  EXPECT_EQ(Counted::objects(), 1);
}

TEST_F(ChanLivesTest, ARefusedSendLeavesTheValueAlone) {
  Channel<Counted> c(0);
  Counted v(1);
  EXPECT_EQ(rt::chansend(c.get(), &v, false), ChanResult::kWouldBlock);
  EXPECT_TRUE(v.full());
  (void)rt::closechan(c.get());
  EXPECT_EQ(rt::chansend(c.get(), &v, false), ChanResult::kClosed);
  EXPECT_TRUE(v.full());
}

TEST_F(ChanLivesTest, AnUnwantedValueIsDestroyed) {
  Channel<Counted> c(2);
  (void)c.TrySend(Counted(1));
  (void)c.TrySend(Counted(2));
  EXPECT_EQ(rt::chanrecv(c.get(), nullptr, false), ChanResult::kOk);
  EXPECT_EQ(Counted::values(), 1);
  EXPECT_EQ(c.TryRecv()->n(), 2);
  EXPECT_EQ(rt::chanrecv(c.get(), nullptr, false), ChanResult::kWouldBlock);
}

TEST_F(ChanLivesTest, SelectDestroysAnUnwantedValue) {
  Channel<Counted> a(1);
  Channel<Counted> b(1);
  (void)b.TrySend(Counted(1));
  rt::Scase cases[] = {{a.get(), nullptr, rt::SelectDir::kRecv},
                       {b.get(), nullptr, rt::SelectDir::kRecv}};
  rt::SelectResult r = rt::selectgo(cases, 2, false);
  EXPECT_EQ(r.index, 1);
  EXPECT_EQ(Counted::objects(), 0);
  EXPECT_EQ(rt::selectgo(cases, 2, false).index, -1);
}

// ---- Waiters ----------------------------------------------------------------

// Waiter is a sudog of a G that no M runs.
struct Waiter {
  rt::G g;
  Sudog sg;
  int value = 0;
  explicit Waiter(bool isSelect = false) {
    sg.g = &g;
    sg.isSelect = isSelect;
    sg.elem = &value;
  }
};

std::vector<Sudog*> Contents(const rt::Waitq& q) {
  std::vector<Sudog*> v;
  const Sudog* prev = nullptr;
  for (Sudog* sg = q.first.load(rt::relaxed); sg != nullptr; sg = sg->next) {
    EXPECT_EQ(sg->prev, prev);
    v.push_back(sg);
    prev = sg;
  }
  if (!v.empty()) {
    EXPECT_EQ(q.last, v.back());
  }
  return v;
}

TEST(WaitqTest, IsFirstInFirstOut) {
  rt::Waitq q;
  auto w = std::make_unique<Waiter[]>(3);
  for (size_t i = 0; i < 3; i++) rt::enqueue(&q, &w[i].sg);
  EXPECT_EQ(Contents(q).size(), 3u);
  for (size_t i = 0; i < 3; i++) EXPECT_EQ(rt::dequeue(&q), &w[i].sg);
  EXPECT_EQ(rt::dequeue(&q), nullptr);
  rt::enqueue(&q, &w[0].sg);
  EXPECT_EQ(Contents(q), std::vector<Sudog*>{&w[0].sg});
}

TEST(WaitqTest, ASudogLeavesFromAnyPlace) {
  for (size_t leaving = 0; leaving < 4; leaving++) {
    rt::Waitq q;
    auto w = std::make_unique<Waiter[]>(4);
    std::vector<Sudog*> want;
    for (size_t i = 0; i < 4; i++) {
      rt::enqueue(&q, &w[i].sg);
      if (i != leaving) want.push_back(&w[i].sg);
    }
    rt::dequeueSudoG(&q, &w[leaving].sg);
    EXPECT_EQ(Contents(q), want);
    rt::dequeueSudoG(&q, &w[leaving].sg);  // gone already: nothing happens
    EXPECT_EQ(Contents(q), want);
  }
}

TEST(WaitqTest, TheOnlySudogMayLeaveTwice) {
  rt::Waitq q;
  Waiter a;
  rt::enqueue(&q, &a.sg);
  EXPECT_EQ(rt::dequeue(&q), &a.sg);
  rt::dequeueSudoG(&q, &a.sg);
  EXPECT_TRUE(Contents(q).empty());
}

TEST(WaitqTest, ASelectIsWonOnce) {
  rt::Waitq q;
  rt::Waitq other;
  Waiter a(/*isSelect=*/true);
  Waiter b;
  Sudog second = a.sg;
  rt::enqueue(&q, &a.sg);
  rt::enqueue(&other, &second);
  rt::enqueue(&other, &b.sg);
  EXPECT_EQ(rt::dequeue(&q), &a.sg);
  EXPECT_EQ(rt::dequeue(&other), &b.sg) << "the loser is passed over";
  rt::dequeueSudoG(&other, &second);
  EXPECT_TRUE(Contents(other).empty());
}

// Out of line, so that the compiler does not know the size of the element.
GUMP_NOINLINE rt::ChanStep SendStep(Hchan* c, void* elem)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // no other thread knows the channel
  return rt::sendLocked(c, elem);
}
GUMP_NOINLINE rt::ChanStep RecvStep(Hchan* c, void* elem)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {  // as above
  return rt::recvLocked(c, elem);
}

TEST(ChanStepTest, ASendGoesStraightToTheFirstReceiver) {
  Channel<int> c(0);
  Waiter a;
  Waiter b;
  rt::enqueue(&c->recvq, &a.sg);
  rt::enqueue(&c->recvq, &b.sg);
  int v = 5;
  rt::ChanStep step = SendStep(c.get(), &v);
  EXPECT_EQ(step.result, ChanResult::kOk);
  EXPECT_EQ(step.wake, &a.sg);
  EXPECT_EQ(a.value, 5);
  EXPECT_EQ(b.value, 0);
  rt::dequeueSudoG(&c->recvq, &b.sg);
}

TEST(ChanStepTest, AReceiveFromAFullRingTurnsItByOne) {
  Channel<int> c(2);
  (void)c.TrySend(1);
  (void)c.TrySend(2);
  Waiter sender;
  sender.value = 3;
  rt::enqueue(&c->sendq, &sender.sg);
  int v = 0;
  rt::ChanStep step = RecvStep(c.get(), &v);
  EXPECT_EQ(step.wake, &sender.sg);
  EXPECT_EQ(v, 1);
  EXPECT_EQ(rt::chanlen(c.get()), 2u);
  EXPECT_EQ(c.TryRecv(), 2);
  EXPECT_EQ(c.TryRecv(), 3);
}

}  // namespace
}  // namespace gump
