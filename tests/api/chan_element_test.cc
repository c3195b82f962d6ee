// The values that channels carry: they have any type, and each is destroyed
// exactly once.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/go.h"
#include "gump/select.h"
#include "tests/testing/counted.h"
#include "tests/testing/with_counted.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using testing::Counted;
using testing::Eventually;

using ChanElementTest = testing::WithCounted;
GUMP_INSTANTIATE_GOMAXPROCS(ChanElementTest);

TEST_P(ChanElementTest, QueuedValuesAreDestroyedWithTheLastHandle) {
  Run([] {
    auto c = std::make_unique<chan<Counted>>(make_chan<Counted>(8));
    for (int i = 0; i < 5; i++) c->Send(Counted(i));
    (void)c->Recv();
    chan<Counted> copy = *c;
    c.reset();
    EXPECT_EQ(Counted::values(), 4);
    copy = nullptr;
    EXPECT_EQ(Counted::values(), 0);
  });
}

// A member that follows such a base class may lie in the padding of the base.
struct Padded {
  Padded() = default;
  Padded(int x, char y) : a(x), b(y) {}
  int a = 0;
  char b = 0;
};
struct Longer : Padded {
  char c = 'c';
};
static_assert(sizeof(Longer) == sizeof(Padded));

TEST_P(ChanElementTest, ReceivingIntoABaseClassLeavesTheRest) {
  Run([] {
    auto ch = make_chan<Padded>(4);
    for (int i = 0; i < 3; i++) ch.Send(Padded(i, 'b'));
    Longer l;
    EXPECT_TRUE(ch.Recv(l));
    EXPECT_EQ(l.c, 'c');
    EXPECT_TRUE(ch >> l);
    EXPECT_EQ(l.c, 'c');
    Padded* base = &l;
    select(Recv(ch, base));
    EXPECT_EQ(l.c, 'c');
    EXPECT_EQ(l.a, 2);
  });
}

struct Counting {
  Counting() { made++; }
  explicit Counting(int x) : n(x) {}
  int n = 0;
  static inline std::atomic<int> made;
};

TEST_P(ChanElementTest, OnlyReceivedValuesAreConstructed) {
  Run([] {
    Counting::made = 0;
    auto c = make_chan<Counting>(1);
    EXPECT_FALSE(c.TryRecv().value.has_value());
    c.Send(Counting(1));
    EXPECT_EQ(c.Recv()->n, 1);
    c.Close();
    EXPECT_FALSE(c.Recv());
    EXPECT_EQ(Counting::made, 0);
  });
}

TEST_P(ChanElementTest, EveryValueIsDestroyedExactlyOnce) {
  Run([] {
    for (size_t cap : {0u, 1u, 3u}) {
      chan<Counted> c = make_chan<Counted>(cap);
      chan<void> done = make_chan<void>();
      std::atomic<int> sum{0};
      for (int g = 0; g < 4; g++) {
        go([=] {
          for (int i = 0; i < 100; i++) c.Send(Counted(i));
          done.Send();
        });
        go([=, &sum] {
          for (int i = 0; i < 100; i++) sum += c.Recv()->n();
          done.Send();
        });
      }
      for (int g = 0; g < 8; g++) done.Recv();
      EXPECT_EQ(sum, 4 * 4950);
    }
    EXPECT_TRUE(Eventually([] { return Counted::objects() == 0; }));
  });
}

// Larger than the buffer for a discarded value.
struct Large {
  Counted counted;
  std::array<char, 100> rest = {};
};

TEST_P(ChanElementTest, LargeDiscardedValuesAreDestroyed) {
  Run([] {
    auto c = make_chan<Large>(1);
    c.Send(Large{Counted(1)});
    EXPECT_EQ(select(Recv(c)), 0);
    EXPECT_EQ(Counted::values(), 0);
  });
}

// Reentrant has a destructor that uses the channel from which it came. It would
// find the lock held if destructors ran under the lock.
struct Reentrant {
  chan<int>* other = nullptr;
  explicit Reentrant(chan<int>* c) : other(c) {}
  Reentrant(Reentrant&& o) noexcept : other(std::exchange(o.other, nullptr)) {}
  ~Reentrant() {
    if (other != nullptr) other->Send(1);
  }
};

TEST_P(ChanElementTest, DestructorsOfValuesMayUseChannels) {
  Run([] {
    chan<int> log = make_chan<int>(4);
    chan<Reentrant> c = make_chan<Reentrant>(4);
    c.Send(Reentrant(&log));
    c.Send(Reentrant(&log));
    (void)c.Recv();
    EXPECT_EQ(log.Len(), 1u);
    c = nullptr;
    EXPECT_EQ(log.Len(), 2u);
  });
}

struct alignas(256) OverAligned {
  int n = 0;
};
struct Huge {
  std::array<unsigned char, 1 << 20> bytes;
};
struct HugeObject {  // not trivially copyable
  explicit HugeObject(unsigned char b) { bytes.fill(b); }
  HugeObject(HugeObject&& o) noexcept : bytes(o.bytes) {}
  HugeObject& operator=(HugeObject&& o) noexcept {
    bytes = o.bytes;
    return *this;
  }
  std::array<unsigned char, 1 << 20> bytes;
};

TEST_P(ChanElementTest, CarriesAnyElementType) {
  Run([] {
    GoOptions big_stack;
    big_stack.stack_size = 32 << 20;
    {
      chan<OverAligned> c = make_chan<OverAligned>(2);
      go([c] {
        for (int i = 0; i < 10; i++) c.Send(OverAligned{i});
        c.Close();
      });
      int want = 0;
      for (const OverAligned& v : c) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(&v) % 256, 0u);
        EXPECT_EQ(v.n, want++);
      }
      EXPECT_EQ(want, 10);
    }
    for (size_t cap : {0u, 2u}) {
      chan<Huge> c = make_chan<Huge>(cap);
      go(big_stack, [c] {
        auto v = std::make_unique<Huge>();
        for (unsigned char i = 0; i < 4; i++) {
          v->bytes.fill(i);
          c.Send(*v);
        }
        c.Close();
      });
      auto v = std::make_unique<Huge>();
      for (unsigned char i = 0; i < 4; i++) {
        EXPECT_TRUE(c.Recv(*v));
        EXPECT_EQ(v->bytes.front(), i);
        EXPECT_EQ(v->bytes.back(), i);
      }
      EXPECT_FALSE(c.Recv(*v));
    }
    {
      chan<HugeObject> c = make_chan<HugeObject>();
      go(big_stack, [c] { c.Send(HugeObject(7)); });
      EXPECT_EQ(c.Recv()->bytes.back(), 7);
    }
    {
      chan<chan<int>> c = make_chan<chan<int>>(1);
      c.Send(make_chan<int>(1));
      c.Recv()->Send(1);
    }
  });
}

TEST_P(ChanElementTest, AnExceptionFromASendLeavesTheChannelUsable) {
  struct Unlucky {
    Unlucky() = default;
    Unlucky(const Unlucky&) { throw 1; }
    Unlucky(Unlucky&&) noexcept {}
  };
  Run([] {
    chan<Unlucky> c = make_chan<Unlucky>(1);
    const Unlucky u;
    EXPECT_THROW(c.Send(u), int);
    EXPECT_THROW(c.TrySend(u), int);
    EXPECT_EQ(c.Len(), 0u);
    c.Send(Unlucky());
    EXPECT_TRUE(c.Recv().has_value());
  });
}

}  // namespace
}  // namespace gump
