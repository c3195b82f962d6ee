// The fast paths of notification lists, which need no goroutine.
#include <gtest/gtest.h>

#include <cstdint>

#include "gump/internal/linkname.h"

namespace gump {
namespace {

TEST(NotifyListTest, NotificationsWithoutWaitersAreNotKept) {
  rt::NotifyList l;
  rt::notifyListNotifyOne(&l);
  rt::notifyListNotifyAll(&l);
  EXPECT_EQ(l.notify.load(rt::relaxed), 0u);
}

TEST(NotifyListTest, WaiterNotifiedBeforeItSleepsDoesNotSleep) {
  rt::NotifyList l;
  const uint32_t first = rt::notifyListAdd(&l);
  const uint32_t second = rt::notifyListAdd(&l);
  rt::notifyListNotifyOne(&l);
  rt::notifyListWait(&l, first);  // would hang
  rt::notifyListNotifyAll(&l);
  rt::notifyListWait(&l, second);
}

TEST(NotifyListTest, TicketsWrapAround) {
  rt::NotifyList l;
  l.wait.store(UINT32_MAX, rt::relaxed);
  l.notify.store(UINT32_MAX, rt::relaxed);
  const uint32_t last = rt::notifyListAdd(&l);
  const uint32_t zero = rt::notifyListAdd(&l);
  EXPECT_EQ(last, UINT32_MAX);
  EXPECT_EQ(zero, 0u);
  rt::notifyListNotifyOne(&l);
  EXPECT_EQ(l.notify.load(rt::relaxed), 0u);
  rt::notifyListWait(&l, last);
  rt::notifyListNotifyOne(&l);
  rt::notifyListWait(&l, zero);
}

}  // namespace
}  // namespace gump
