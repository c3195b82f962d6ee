// Helpers for tests of PollDesc: descriptors that take no more, edges that are
// noted, and goroutines that read.
#ifndef TESTS_NETPOLL_NETPOLL_TESTING_H_
#define TESTS_NETPOLL_NETPOLL_TESTING_H_

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gtest/gtest.h"
#include "gump/sync/waitgroup.h"
#include "netpoll/polldesc.h"
#include "tests/netpoll/poll_testing.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {

// Fill writes to fd until it takes no more, and returns the number of bytes.
inline size_t Fill(int fd) {
  static const char zeros[4096] = {};
  size_t n = 0;
  for (size_t part : {sizeof(zeros), size_t{1}}) {
    for (ssize_t k; (k = ::write(fd, zeros, part)) > 0;) {
      n += static_cast<size_t>(k);
    }
  }
  return n;
}

// Take reads n bytes from fd.
inline void Take(int fd, size_t n) {
  char buf[4096];
  while (n > 0) {
    const ssize_t k = ::read(fd, buf, std::min(n, sizeof(buf)));
    ASSERT_GT(k, 0);
    n -= static_cast<size_t>(k);
  }
}

// EventuallyNoted tells whether an edge is noted while no goroutine waits. It
// is needed after a Harvest, because an M that took the edge earlier may not
// have reported it yet.
inline bool EventuallyNoted(const Polled& p, rt::PollMode mode) {
  const auto& word = mode == kRead ? p->rg : p->wg;
  return Eventually([&] { return word.load(rt::acquire) == rt::pdReady; });
}

// WaitUntilReady asks the descriptor before each wait, as an FD does. A wait
// may be ended by an edge from long before.
inline void WaitUntilReady(const Polled& p, rt::PollMode mode) {
  pollfd asked{p->fd, static_cast<int16_t>(mode == kRead ? POLLIN : POLLOUT),
               0};
  for (;;) {
    ASSERT_EQ(p.Reset(mode), rt::kPollOk);
    if (::poll(&asked, 1, 0) > 0) return;
    ASSERT_EQ(p.Wait(mode), rt::kPollOk);
  }
}

// Reader is a goroutine that waits until there is something to read, however
// often it is woken before.
class Reader {
 public:
  explicit Reader(const Polled& p) {
    wg_.Go([this, &p] {
      WaitUntilReady(p, kRead);
      done_ = true;
    });
  }
  ~Reader() { wg_.Wait(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  bool done() const { return done_; }

 private:
  sync::WaitGroup wg_;
  std::atomic<bool> done_ = false;
};

// Full is a PollDesc whose descriptor takes no more data. Its first edge, which
// says that it can be written, has come and gone.
struct Full {
  explicit Full(Kind kind = Kind::kSocketpair) : ends(kind), p(ends.in.fd()) {
    Harvest();
    EXPECT_TRUE(EventuallyNoted(p, kWrite));
    size = Fill(ends.in.fd());
    EXPECT_EQ(p.Reset(kWrite), rt::kPollOk);
  }
  Ends ends;
  Polled p;
  size_t size;
};

}  // namespace gump::testing

#endif  // TESTS_NETPOLL_NETPOLL_TESTING_H_
