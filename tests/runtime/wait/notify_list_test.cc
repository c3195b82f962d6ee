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

TEST(NotifyListTest, WaiterThatLeavesDoesNotUseUpANotification) {
  rt::NotifyList l;
  rt::NotifyWaiter w[3];
  for (rt::NotifyWaiter& x : w) rt::notifyListEnter(&l, &x);
  EXPECT_TRUE(rt::notifyListLeave(&l, &w[1]));
  rt::notifyListNotifyOne(&l);
  rt::notifyListNotifyOne(&l);
  rt::notifyListNotifyOne(&l);  // no waiter is left
  EXPECT_EQ(w[0].woken.load(rt::relaxed), 1u);
  EXPECT_EQ(w[1].woken.load(rt::relaxed), 0u);
  EXPECT_EQ(w[2].woken.load(rt::relaxed), 1u);
  EXPECT_FALSE(rt::notifyListLeave(&l, &w[0])) << "it has been notified";
  EXPECT_EQ(l.head, nullptr);
  EXPECT_EQ(l.tail, nullptr);
  EXPECT_EQ(l.wait.load(rt::relaxed), l.notify.load(rt::relaxed));
}

// A ticket was drawn between the two waiters with a limit, so it is notified
// between them.
TEST(NotifyListTest, WaiterWithALimitStandsBetweenTickets) {
  rt::NotifyList l;
  rt::NotifyWaiter first, last;
  rt::notifyListEnter(&l, &first);
  const uint32_t ticket = rt::notifyListAdd(&l);
  rt::notifyListEnter(&l, &last);
  rt::notifyListNotifyOne(&l);
  EXPECT_EQ(first.woken.load(rt::relaxed), 1u);
  EXPECT_EQ(l.notify.load(rt::relaxed), ticket);
  rt::notifyListNotifyOne(&l);
  EXPECT_EQ(last.woken.load(rt::relaxed), 0u);
  rt::notifyListWait(&l, ticket);  // would hang
  rt::notifyListNotifyAll(&l);
  EXPECT_EQ(last.woken.load(rt::relaxed), 1u);
  EXPECT_FALSE(rt::notifyListLeave(&l, &last));
}

TEST(NotifyListTest, TicketsWrapAround) {
  rt::NotifyList l;
  l.wait.store(UINT32_MAX - 1, rt::relaxed);
  l.notify.store(UINT32_MAX - 1, rt::relaxed);
  const uint32_t last = rt::notifyListAdd(&l);
  const uint32_t zero = rt::notifyListAdd(&l);
  EXPECT_EQ(last, UINT32_MAX - 1);
  EXPECT_EQ(zero, 0u);
  rt::notifyListNotifyOne(&l);
  EXPECT_EQ(l.notify.load(rt::relaxed), 0u);
  rt::notifyListWait(&l, last);
  rt::notifyListNotifyOne(&l);
  rt::notifyListWait(&l, zero);
}

}  // namespace
}  // namespace gump
