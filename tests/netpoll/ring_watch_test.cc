// The descriptors that the ring watches (netpoll/ring.h): which events are
// reported, for however many watches. Where the kernel has no io_uring, or one
// that serves only files, these tests are skipped.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gump/sync.h"
#include "netpoll/ring.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using rt::PollDesc;
using rt::ringRead;
using testing::Ends;
using testing::File;
using testing::Kind;

class RingWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::RingIsThere()) GTEST_SKIP() << "no io_uring";
    if (!rt::ringWatches()) GTEST_SKIP() << "only files here";
  }
  // Watch watches fd n times.
  void Watch(int fd, int n) {
    for (int i = 0; i < n; i++) {
      auto pd = std::make_unique<PollDesc>();
      pd->fd = fd;
      ASSERT_EQ(rt::ringWatch(pd.get()), 0);
      pds_.push_back(std::move(pd));
    }
  }
  void Forget() {
    for (const auto& pd : pds_) {
      pd->rg.store(rt::pdNil, rt::seq_cst);
      pd->wg.store(rt::pdNil, rt::seq_cst);
    }
  }
  // Told returns how many watches have had an event since the last Forget.
  long Told() const {
    return std::count_if(pds_.begin(), pds_.end(), [](const auto& pd) {
      return pd->rg.load(rt::acquire) == rt::pdReady ||
             pd->wg.load(rt::acquire) == rt::pdReady;
    });
  }
  // Settled makes sure that no more events come.
  bool Settled() {
    return testing::Eventually([&] {
      Forget();
      char c;
      for (int i = 0; i < 3; i++) (void)ringRead(-1, &c, 1, 0);  // a round
      return Told() == 0;
    });
  }
  void Unwatch() {
    for (const auto& pd : pds_) rt::ringUnwatch(pd.get());
    pds_.clear();
  }

  // More events at a time than the kernel has room for.
  static constexpr int kMany = 6000;
  static constexpr int kVeryMany = 10'000;

 private:
  std::vector<std::unique_ptr<PollDesc>> pds_;
};

// There may be no room for the first event of a watch, because the answers to
// other watches, which end at that moment, take the room.
TEST_F(RingWatchTest, DroppedEventsAreReportedTheNextTime) {
  testing::RunWith(2, [this] {
    const Ends others(Kind::kPipe);
    for (int round = 0; round < 3; round++) {
      Ends e(Kind::kPipe);
      Watch(e.out.fd(), 300);
      std::vector<PollDesc> many(kMany);
      sync::WaitGroup wg;
      for (PollDesc& pd : many) {
        pd.fd = others.out.fd();
        wg.Go([&] { EXPECT_EQ(rt::ringWatch(&pd), 0); });
      }
      wg.Wait();
      for (PollDesc& pd : many) {
        wg.Go([&] { rt::ringUnwatch(&pd); });
        if (&pd == &many[kMany / 2]) e.Signal();
      }
      wg.Wait();
      for (int i = 0; i < 3; i++) {
        EXPECT_TRUE(testing::Eventually([&] { return Told() == 300; }))
            << i << ": " << Told();
        e.Drain();
        Forget();
        e.Signal();
      }
      Unwatch();
    }
  });
}

// Each descriptor that is watched again has an event at once.
TEST_F(RingWatchTest, MoreWatchesThanThereIsRoomForComeToRest) {
  testing::RunWith(2, [this] {
    Ends e(Kind::kPipe);
    Watch(e.in.fd(), kVeryMany);  // can be written
    EXPECT_TRUE(Settled());
    e.Signal();
    e.Drain();  // there is room again, so all have an event
    EXPECT_TRUE(Settled());
    Unwatch();
  });
}

TEST_F(RingWatchTest, WatchesDoNotWaitForCallsThatTakeLong) {
  testing::RunWith(2, [this] {
    int fds[2];
    ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    const File out(fds[0]);
    const File in(fds[1]);
    constexpr int kStalled = 3000;  // more than the kernel is given at a time
    std::atomic<int> ended = 0;
    sync::WaitGroup wg;
    for (int i = 0; i < kStalled; i++) {
      wg.Go([&] {
        char c;
        EXPECT_EQ(ringRead(out.fd(), &c, 1, -1), 1);
        ended++;
      });
    }
    std::atomic<bool> done = false;
    wg.Go([&, this] {
      Ends e;
      Watch(e.out.fd(), 1);
      Unwatch();
      done = true;
    });
    EXPECT_TRUE(testing::Eventually([&] { return done.load(); }));
    EXPECT_EQ(ended, 0);
    const std::string bytes(kStalled, 'x');
    EXPECT_EQ(::write(in.fd(), bytes.data(), kStalled), kStalled);
    wg.Wait();
  });
}

TEST_F(RingWatchTest, AWatchThatCannotBeginSaysSo) {
  PollDesc pd;
  EXPECT_EQ(rt::ringWatch(&pd), EBADF);
  rt::ringUnwatch(&pd);
}

}  // namespace
}  // namespace gump
