// Channels and select (runtime/wait/chan.cc, select.cc), between plain threads.
#include "gump/internal/linkname.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

using rt::ChanResult;

// A send passes a pointer to a number that is written before the send.
constexpr rt::ElemType kElem = {sizeof(int*), alignof(int*)};
int numbers[4] = {};
rt::Hchan *c, *d;
int sum;
rt::Atomic<int> received;
rt::Atomic<int> closedSeen;

rt::Hchan* makeChan(size_t cap) { return rt::makechan(&kElem, cap); }

ChanResult send(rt::Hchan* ch, int i, bool block = true) {
  numbers[i] = i + 1;
  int* p = &numbers[i];
  return rt::chansend(ch, &p, block);
}

ChanResult receive(rt::Hchan* ch, bool block = true) {
  int* p = nullptr;
  const ChanResult r = rt::chanrecv(ch, &p, block);
  if (r == ChanResult::kOk) {
    check(p != nullptr && *p != 0, "a value that was not sent");
    *p = 0;  // exactly one receiver has it
    received.add(1, rt::relaxed);
  } else {
    check(p == nullptr, "a value comes with no value");
  }
  return r;
}

void wants(int n) { check(received.load(rt::relaxed) == n, "a value is lost"); }

const Registered kSenders({
    .name = "chan_senders",
    .about = "unbuffered: two senders, one receiver",
    .setup =
        [] {
          c = makeChan(0);
          plainThread("send0", [] { (void)send(c, 0); });
          plainThread("send1", [] { (void)send(c, 1); });
          plainThread("recv", [] {
            (void)receive(c);
            (void)receive(c);
          });
        },
    .finish = [] { wants(2); },
});

const Registered kReceivers({
    .name = "chan_receivers",
    .about = "unbuffered: one sender, two receivers",
    .setup =
        [] {
          c = makeChan(0);
          plainThread("recv0", [] { (void)receive(c); });
          plainThread("recv1", [] { (void)receive(c); });
          plainThread("send", [] {
            (void)send(c, 0);
            (void)send(c, 1);
          });
        },
    .finish = [] { wants(2); },
});

const Registered kBuffered({
    .name = "chan_buffered",
    .about = "a ring of one: a sender of two, two receivers",
    .setup =
        [] {
          c = makeChan(1);
          plainThread("send", [] {
            (void)send(c, 0);
            (void)send(c, 1);
          });
          plainThread("recv0", [] { (void)receive(c); });
          plainThread("recv1", [] { (void)receive(c); });
        },
    .finish = [] { wants(2); },
});

const Registered kClose({
    .name = "chan_close",
    .about = "close against receivers that wait, and a sender",
    .setup =
        [] {
          c = makeChan(1);
          plainThread("send", [] {
            (void)send(c, 0);
            check(rt::closechan(c) == rt::CloseResult::kOk, "close");
          });
          plainThread("recv0", [] { (void)receive(c); });
          plainThread("recv1", [] {
            while (receive(c) == ChanResult::kOk) {
            }
          });
        },
    .finish = [] { wants(1); },
});

// A receiver that sees the channel closed also sees the value that was sent
// before the close, and everything that was written before the close.
const Registered kTry({
    .name = "chan_try",
    .about = "send and receive that do not wait, against close",
    .setup =
        [] {
          c = makeChan(1);
          plainThread("send", [] {
            check(send(c, 0, false) == ChanResult::kOk, "there is room");
            sum = 7;
            (void)rt::closechan(c);
          });
          plainThread("recv", [] {
            ChanResult r;
            while ((r = receive(c, false)) == ChanResult::kWouldBlock) {
              rt::gosched();
            }
            if (r == ChanResult::kOk) {
              while ((r = receive(c, false)) == ChanResult::kWouldBlock) {
                rt::gosched();
              }
            }
            check(r == ChanResult::kClosed && sum == 7, "close is no release");
          });
        },
    .finish = [] { wants(1); },
    .quick = {3, 1, 200},
    .full = {4, 1, 20000},
});

// The receiver drops the last handle as soon as it has the value, while the
// sender is still on its way out.
const Registered kFree({
    .name = "chan_free",
    .about = "the last handle goes while the other side is leaving",
    .setup =
        [] {
          c = makeChan(0);
          rt::chanRetain(c);
          plainThread("send", [] {
            (void)send(c, 0);
            rt::chanRelease(c);
          });
          plainThread("recv", [] {
            (void)receive(c);
            rt::chanRelease(c);
          });
        },
    .finish = [] { wants(1); },
    .quick = {3, 1, 500},
    .full = {5, 1, 20000},
});

// Two threads only peek and then drop their handles. Only the reference count
// orders their reads before the destruction.
void peekAndRelease() {
  int* p = &numbers[0];
  check(rt::chansend(c, &p, false) == ChanResult::kWouldBlock, "sent");
  rt::chanRelease(c);
}

const Registered kPeek({
    .name = "chan_peek",
    .about = "the last handle goes after a look without the lock",
    .setup =
        [] {
          c = makeChan(0);
          rt::chanRetain(c);
          plainThread("a", peekAndRelease);
          plainThread("b", peekAndRelease);
        },
    .quick = {4, 1, 200},
    .full = {5, 1, 20000},
});

// ---- Select -----------------------------------------------------------------

rt::SelectResult selectRecv2(bool block) {
  int* p = nullptr;
  int* q = nullptr;
  const rt::Scase cases[] = {{c, &p, rt::SelectDir::kRecv},
                             {d, &q, rt::SelectDir::kRecv}};
  const rt::SelectResult r = rt::selectgo(cases, 2, block);
  if (r.result == ChanResult::kOk) {
    int* got = r.index == 0 ? p : q;
    check(got != nullptr && *got != 0, "a value that was not sent");
    *got = 0;
    received.add(1, rt::relaxed);
  } else if (r.result == ChanResult::kClosed) {
    closedSeen.add(1, rt::relaxed);
  }
  return r;
}

const Registered kSelect({
    .name = "select",
    .about = "a select of two channels against a sender on each",
    .setup =
        [] {
          c = makeChan(0);
          d = makeChan(0);
          plainThread("select", [] {
            (void)selectRecv2(true);
            (void)selectRecv2(true);
          });
          plainThread("send0", [] { (void)send(c, 0); });
          plainThread("send1", [] { (void)send(d, 1); });
        },
    .finish = [] { wants(2); },
    .quick = {2, 1, 200},
    .full = {3, 1, 20000, 2},
});

const Registered kSelectClose({
    .name = "select_close",
    .about = "a select of two channels: one is closed, one sent to",
    .setup =
        [] {
          c = makeChan(0);
          d = makeChan(0);
          plainThread("select", [] {
            while (selectRecv2(true).index != 1) rt::gosched();
          });
          plainThread("close", [] { (void)rt::closechan(c); });
          plainThread("send", [] { (void)send(d, 1); });
        },
    .finish = [] { wants(1); },
    .quick = {2, 1, 200},
    .full = {3, 1, 20000, 2},
});

// Each thread sends on one channel and receives on the other. They pair once,
// and each takes exactly one of its cases.
void sendOrReceive(rt::Hchan* out, rt::Hchan* in, int i) {
  numbers[i] = i + 1;
  int* mine = &numbers[i];
  int* got = nullptr;
  const rt::Scase cases[] = {{out, &mine, rt::SelectDir::kSend},
                             {in, &got, rt::SelectDir::kRecv}};
  const rt::SelectResult r = rt::selectgo(cases, 2, true);
  check(r.result == ChanResult::kOk, "select");
  if (r.index == 1) {
    check(got == &numbers[1 - i], "a value that was not sent");
    received.add(1, rt::relaxed);
  } else {
    check(got == nullptr, "both cases happened");
  }
}

const Registered kSelectSelect({
    .name = "select_select",
    .about = "two selects that can only pair with each other",
    .setup =
        [] {
          c = makeChan(0);
          d = makeChan(0);
          plainThread("a", [] { sendOrReceive(c, d, 0); });
          plainThread("b", [] { sendOrReceive(d, c, 1); });
        },
    .finish = [] { wants(1); },
    .quick = {3, 1, 200},
    .full = {4, 1, 20000},
});

}  // namespace
}  // namespace gump::model
