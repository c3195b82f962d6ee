// The orders of select, and selects that do not wait, on bare channels.
#include "runtime/wait/select.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "gump/chan.h"
#include "runtime/sched/runtime2.h"

namespace gump {
namespace {

using rt::Hchan;
using rt::Scase;
using rt::SelectDir;

// Channels is n bare channels of capacity cap.
class Channels {
 public:
  Channels(size_t n, size_t cap) {
    for (size_t i = 0; i < n; i++) {
      all_.push_back(rt::makechan(&internal::kElemType<int>, cap));
    }
  }
  ~Channels() {
    for (Hchan* c : all_) rt::chanRelease(c);
  }
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;
  Hchan* operator[](size_t i) const { return all_[i]; }

 private:
  std::vector<Hchan*> all_;
};

// Orders computes both orders of a list of cases.
struct Orders {
  std::vector<uint16_t> poll, lock;
  explicit Orders(const std::vector<Scase>& cases, rt::M* mp)
      : poll(cases.size()), lock(cases.size()) {
    rt::Select s;
    s.cases = cases.data();
    s.n = cases.size();
    s.pollorder = poll.data();
    s.lockorder = lock.data();
    rt::pollOrder(&s, mp);
    rt::lockOrder(&s);
    poll.resize(s.norder);
    lock.resize(s.norder);
  }
};

class SelectOrderTest : public ::testing::TestWithParam<size_t> {
 protected:
  SelectOrderTest() { m_.schedrand = 12345; }
  rt::M m_;
};

TEST_P(SelectOrderTest, NamesEveryCaseOnceAndLocksByAddress) {
  const size_t n = GetParam();
  Channels channels(n, 0);
  std::vector<Scase> cases;
  for (size_t i = 0; i < n; i++) {
    cases.push_back({channels[(i * 7) % n], nullptr, SelectDir::kRecv});
    if (i % 3 == 0) cases.push_back({});  // a nil channel: in neither order
  }
  Orders o(cases, &m_);
  EXPECT_EQ(o.poll.size(), n);
  std::vector<uint16_t> sorted = o.poll;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end());
  for (uint16_t i : o.poll) EXPECT_NE(cases[i].c, nullptr);
  EXPECT_TRUE(std::is_permutation(o.poll.begin(), o.poll.end(), o.lock.begin(),
                                  o.lock.end()));
  EXPECT_TRUE(std::is_sorted(
      o.lock.begin(), o.lock.end(),
      [&](uint16_t a, uint16_t b) { return cases[a].c < cases[b].c; }));
}

// The first case in lock order wins, if a waker finds several cases of a select
// in one channel.
TEST_P(SelectOrderTest, EachCaseOfAChannelIsLockedFirstEquallyOften) {
  const size_t n = GetParam();
  constexpr int kRounds = 2000;
  Channels channels(3, 0);
  std::vector<Scase> cases;
  for (size_t i = 0; i < n; i++) {
    cases.push_back({channels[i % 3], nullptr, SelectDir::kSend});
  }
  std::vector<int> first(n);
  for (int k = 0; k < kRounds; k++) {
    Orders o(cases, &m_);
    const Hchan* last = nullptr;
    for (const uint16_t i : o.lock) {
      if (cases[i].c != last) first[i]++;
      last = cases[i].c;
    }
  }
  if (n > 18) return;  // too few rounds for so many
  for (size_t i = 0; i < n; i++) {
    const auto of_channel = static_cast<int>((n - i % 3 + 2) / 3);
    EXPECT_GT(first[i], kRounds / of_channel / 2) << i;
    EXPECT_LE(first[i], 2 * kRounds / of_channel) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, SelectOrderTest,
                         ::testing::Values(1, 2, 3, 4, 5, 16, 17, 18, 100,
                                           1000));

TEST_F(SelectOrderTest, EveryCaseIsPolledFirstEquallyOften) {
  constexpr size_t kN = 5;
  constexpr int kRounds = 50000;
  Channels channels(kN, 0);
  std::vector<Scase> cases;
  for (size_t i = 0; i < kN; i++) {
    cases.push_back({channels[i], nullptr, SelectDir::kRecv});
  }
  int first[kN] = {};
  for (int i = 0; i < kRounds; i++) first[Orders(cases, &m_).poll[0]]++;
  const double mean = double{kRounds} / kN;
  const double sigma = std::sqrt(kRounds * (1.0 / kN) * (1 - 1.0 / kN));
  for (int n : first) EXPECT_NEAR(n, mean, 10 * sigma);
}

TEST(SelectgoTest, NothingReadyIsReportedOnlyWithoutBlocking) {
  Channels c(3, 1);
  int v[3];
  Scase cases[3];
  for (size_t i = 0; i < 3; i++) cases[i] = {c[i], &v[i], SelectDir::kRecv};
  EXPECT_EQ(rt::selectgo(cases, 3, false).index, -1);
  EXPECT_EQ(rt::selectgo(cases, 0, false).index, -1);
}

TEST(SelectgoTest, TakesTheReadyCase) {
  Channels c(20, 1);
  int v[20] = {};
  std::vector<Scase> cases;
  for (size_t i = 0; i < 20; i++) {
    cases.push_back({c[i], &v[i], SelectDir::kRecv});
  }
  for (size_t n : {1u, 2u, 4u, 5u, 16u, 17u, 20u}) {
    int x = static_cast<int>(n);
    ASSERT_EQ(rt::chansend(c[n - 1], &x, false), rt::ChanResult::kOk);
    rt::SelectResult r = rt::selectgo(cases.data(), n, true);
    EXPECT_EQ(r.index, static_cast<int32_t>(n) - 1);
    EXPECT_EQ(r.result, rt::ChanResult::kOk);
    EXPECT_EQ(v[n - 1], x);
  }
}

TEST(SelectgoTest, ReportsClosedForBothDirections) {
  Channels c(2, 0);
  ASSERT_EQ(rt::closechan(c[1]), rt::CloseResult::kOk);
  int v = 7;
  for (SelectDir dir : {SelectDir::kRecv, SelectDir::kSend}) {
    Scase cases[] = {{c[0], &v, dir}, {c[1], &v, dir}, {}};
    rt::SelectResult r = rt::selectgo(cases, 3, true);
    EXPECT_EQ(r.index, 1);
    EXPECT_EQ(r.result, rt::ChanResult::kClosed);
    EXPECT_EQ(v, 7);
  }
}

TEST(SelectgoTest, TheSameChannelInEveryCaseIsLockedOnce) {
  Channels c(1, 2);
  int v = 1;
  std::vector<Scase> cases(40, Scase{c[0], &v, SelectDir::kSend});
  EXPECT_GE(rt::selectgo(cases.data(), cases.size(), false).index, 0);
  EXPECT_GE(rt::selectgo(cases.data(), cases.size(), false).index, 0);
  EXPECT_EQ(rt::selectgo(cases.data(), cases.size(), false).index, -1);
}

TEST(SelectgoTest, LooksAtAsManyCasesAsAreAllowed) {
  Channels c(64, 1);
  int v = 0;
  std::vector<Scase> cases;
  for (size_t i = 0; i < rt::kMaxSelectCases; i++) {
    cases.push_back({c[i % 64], &v, SelectDir::kRecv});
  }
  EXPECT_EQ(rt::selectgo(cases.data(), cases.size(), false).index, -1);
  int x = 9;
  ASSERT_EQ(rt::chansend(c[63], &x, false), rt::ChanResult::kOk);
  EXPECT_EQ(rt::selectgo(cases.data(), cases.size(), false).index % 64, 63);
  EXPECT_EQ(v, 9);
}

}  // namespace
}  // namespace gump
