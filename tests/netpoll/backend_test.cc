// The promises of netpoll/backend.h, for each back end. No goroutine waits
// here: the tests see events in the words of bare PollDescs. The rest of the
// poller is not started, because a back end is initialised once.
#include "netpoll/backend.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "netpoll/polldesc.h"
#include "runtime/diag/stats.h"
#include "runtime/sys/os_linux.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/scratch.h"

namespace gump {
namespace {

using rt::nanotime;
using rt::NetpollBackend;
using rt::NetpollResult;
using rt::pdNil;
using rt::pdReady;
using rt::PollDesc;
using rt::PollTag;
using testing::Ends;
using testing::File;
using testing::Kind;
using testing::kKinds;
using testing::kMillisecond;

// Every back end runs the whole suite.
const NetpollBackend* const kBackends[] = {&rt::kEpollBackend,
                                           &rt::kUringBackend};

class BackendTest : public ::testing::TestWithParam<const NetpollBackend*> {
 protected:
  void SetUp() override {
    static const NetpollBackend* started = nullptr;
    if (started != GetParam()) {
      const int err = backend().init();
      if (GetParam() == &rt::kUringBackend && err != 0) {
        GTEST_SKIP() << "no io_uring, or an old one: " << err;
      }
      ASSERT_EQ(err, 0);
      started = GetParam();
    }
    while (Poll(0)) {
    }
  }
  const NetpollBackend& backend() const { return *GetParam(); }
  // Poll polls once, and tells whether a break ended the poll.
  bool Poll(int64_t delay) const {
    NetpollResult r;
    const bool broken = backend().poll(delay, &r);
    EXPECT_TRUE(r.toRun.empty());
    EXPECT_EQ(r.delta, 0);
    return broken;
  }
  std::unique_ptr<PollDesc> Open(int fd) const {
    auto pd = std::make_unique<PollDesc>();
    pd->fd = fd;
    pd->tag.store(5, rt::relaxed);
    pd->info.store(5 << rt::kPollTagShift, rt::relaxed);
    EXPECT_EQ(backend().open(pd.get()), 0);
    return pd;
  }
  // PollUntil polls until condition() holds.
  template <class C>
  void PollUntil(C condition) const {
    const int64_t end = nanotime() + 60'000 * kMillisecond;
    while (!condition() && nanotime() < end) (void)Poll(10 * kMillisecond);
    EXPECT_TRUE(condition());
  }
};

INSTANTIATE_TEST_SUITE_P(, BackendTest, ::testing::ValuesIn(kBackends),
                         [](const auto& param) {
                           return std::string(param.param->name);
                         });

bool Readable(const std::unique_ptr<PollDesc>& pd) {
  return pd->rg.load(rt::acquire) == pdReady;
}
bool Writable(const std::unique_ptr<PollDesc>& pd) {
  return pd->wg.load(rt::acquire) == pdReady;
}
void Forget(const std::unique_ptr<PollDesc>& pd) {
  pd->rg.store(pdNil, rt::seq_cst);
  pd->wg.store(pdNil, rt::seq_cst);
}

// ---- Edges

TEST_P(BackendTest, EachChangeIsReported) {
  for (const Kind kind : kKinds) {
    Ends e(kind);
    auto pd = Open(e.out.fd());
    for (int i = 0; i < 10; i++) {
      Forget(pd);
      e.Signal();
      PollUntil([&] { return Readable(pd); });
      e.Drain();
    }
    backend().close(pd.get());
  }
}

TEST_P(BackendTest, ReadinessAtTheStartIsReported) {
  Ends e;
  e.Signal();
  auto pd = Open(e.out.fd());
  PollUntil([&] { return Readable(pd) && Writable(pd); });
  EXPECT_FALSE(pd->hungUp.load(rt::acquire));
  backend().close(pd.get());
}

TEST_P(BackendTest, RoomIsReported) {
  Ends e(Kind::kPipe);
  auto pd = Open(e.in.fd());
  PollUntil([&] { return Writable(pd); });
  const std::string some(4096, 'x');
  while (::write(e.in.fd(), some.data(), some.size()) > 0) {
  }
  Forget(pd);
  (void)Poll(kMillisecond);
  EXPECT_FALSE(Writable(pd));
  e.Drain();
  PollUntil([&] { return Writable(pd); });
  backend().close(pd.get());
}

TEST_P(BackendTest, HangingUpIsReported) {
  for (const Kind kind : {Kind::kSocketpair, Kind::kPipe}) {
    Ends e(kind);
    auto pd = Open(e.out.fd());
    (void)Poll(0);
    Forget(pd);
    e.in.Close();
    PollUntil([&] { return Readable(pd) && Writable(pd); });
    EXPECT_TRUE(pd->hungUp.load(rt::acquire));
    EXPECT_EQ(pd->info.load(rt::acquire) & rt::kPollEventErr, 0u);
    backend().close(pd.get());
  }
}

TEST_P(BackendTest, HalfAFinConcernsReadersOnly) {
  Ends e;
  auto pd = Open(e.out.fd());
  PollUntil([&] { return Writable(pd); });
  const std::string some(4096, 'x');
  while (::write(e.out.fd(), some.data(), some.size()) > 0) {
  }
  (void)Poll(0);
  Forget(pd);
  ASSERT_EQ(::shutdown(e.in.fd(), SHUT_WR), 0);
  PollUntil([&] { return Readable(pd); });
  EXPECT_FALSE(Writable(pd));
  EXPECT_TRUE(pd->hungUp.load(rt::acquire));
  backend().close(pd.get());
}

TEST_P(BackendTest, AnErrorAloneIsNoted) {
  Ends e(Kind::kPipe);
  auto pd = Open(e.in.fd());
  const std::string some(4096, 'x');
  while (::write(e.in.fd(), some.data(), some.size()) > 0) {
  }
  (void)Poll(0);
  Forget(pd);
  e.out.Close();
  PollUntil([&] { return Readable(pd) && Writable(pd); });
  EXPECT_NE(pd->info.load(rt::acquire) & rt::kPollEventErr, 0u);
  EXPECT_TRUE(pd->hungUp.load(rt::acquire));
  backend().close(pd.get());
}

TEST_P(BackendTest, MoreEventsThanOnePollTakesAreAllReported) {
  std::vector<std::unique_ptr<Ends>> ends;
  std::vector<std::unique_ptr<PollDesc>> pds;
  for (int i = 0; i < 400; i++) {
    ends.push_back(std::make_unique<Ends>(Kind::kEventfd));
    pds.push_back(Open(ends.back()->out.fd()));
    ends.back()->Signal();
  }
  PollUntil([&] {
    for (const auto& pd : pds) {
      if (!Readable(pd)) return false;
    }
    return true;
  });
  for (const auto& pd : pds) backend().close(pd.get());
}

// ---- The end of a registration

TEST_P(BackendTest, EventsWithAnotherTagAreStale) {
  if (&backend() != &rt::kEpollBackend) return;  // the ring makes no stale ones
  const uint64_t before = rt::stats.staleEvents.load(rt::relaxed);
  Ends e;
  auto pd = Open(e.out.fd());
  e.Signal();
  pd->tag.add(1, rt::release);  // given back
  for (int i = 0; i < 3; i++) (void)Poll(kMillisecond);
  EXPECT_FALSE(Readable(pd));
  EXPECT_FALSE(Writable(pd));
  e.in.Close();
  for (int i = 0; i < 3; i++) (void)Poll(kMillisecond);
  EXPECT_FALSE(Readable(pd));
  EXPECT_FALSE(pd->hungUp.load(rt::acquire));
  EXPECT_GT(rt::stats.staleEvents.load(rt::relaxed), before);
  backend().close(pd.get());
}

TEST_P(BackendTest, CloseEndsTheRegistrationOfDuplicatesToo) {
  Ends e;
  File duplicate(::fcntl(e.out.fd(), F_DUPFD_CLOEXEC, 0));
  auto pd = Open(e.out.fd());
  backend().close(pd.get());
  e.out.Close();
  while (Readable(pd) || Writable(pd)) {
    Forget(pd);  // an event that was under way
    (void)Poll(kMillisecond);
  }
  e.Signal();
  for (int i = 0; i < 3; i++) (void)Poll(kMillisecond);
  EXPECT_FALSE(Readable(pd));
}

TEST_P(BackendTest, ANumberMayBeRegisteredAgain) {
  Ends e;
  for (int i = 0; i < 100; i++) {
    auto pd = Open(e.out.fd());
    e.Signal();
    PollUntil([&] { return Readable(pd); });
    e.Drain();
    backend().close(pd.get());
  }
}

TEST_P(BackendTest, RegularFilesAndBadDescriptorsAreRefused) {
  File file(testing::ScratchFd());
  ASSERT_GE(file.fd(), 0);
  PollDesc pd;
  pd.fd = file.fd();
  EXPECT_EQ(backend().open(&pd), EPERM);
  file.Close();
  EXPECT_EQ(backend().open(&pd), EBADF);
}

// ---- Breaks, and time

TEST_P(BackendTest, AWakeEndsThePollUnderWay) {
  std::atomic<bool> ended = false;
  std::thread poller([&] {
    while (!Poll(-1)) {
    }
    ended = true;
  });
  // The wake may come before the sleep or during it. Either ends the poll.
  backend().wake();
  poller.join();
  EXPECT_TRUE(ended);
}

TEST_P(BackendTest, AWakeBeforeThePollEndsItAndNoOther) {
  backend().wake();
  backend().wake();
  EXPECT_TRUE(Poll(60'000 * kMillisecond)) << "it ends the next";
  EXPECT_FALSE(Poll(kMillisecond)) << "both were one";
}

TEST_P(BackendTest, APollThatDoesNotWaitLeavesTheWakeToOneThatDoes) {
  backend().wake();
  for (int i = 0; i < 3; i++) EXPECT_FALSE(Poll(0));
  EXPECT_TRUE(Poll(60'000 * kMillisecond));
}

TEST_P(BackendTest, APollEndsWhenItsTimeIsUp) {
  for (const int64_t delay : {int64_t{1}, int64_t{50'000}, 5 * kMillisecond}) {
    const int64_t start = nanotime();
    while (nanotime() - start < delay) EXPECT_FALSE(Poll(delay));
    EXPECT_LT(nanotime() - start, 10'000 * kMillisecond);
  }
}

// ---- Tags

TEST(PollTagTest, PointersAndTagsComeBack) {
  PollDesc pd;
  for (const uint32_t tag : {0U, 1U, PollTag::kMask - 1, PollTag::kMask}) {
    const uint64_t packed = PollTag::pack(&pd, tag);
    EXPECT_EQ(PollTag::desc(packed), &pd);
    EXPECT_EQ(PollTag::tag(packed), tag);
  }
  EXPECT_EQ(PollTag::tag(PollTag::pack(&pd, PollTag::kMask + 1)), 0u);
  auto* high = reinterpret_cast<PollDesc*>((uint64_t{1} << 47) - 64);
  EXPECT_EQ(PollTag::desc(PollTag::pack(high, 77)), high);
}

}  // namespace
}  // namespace gump
