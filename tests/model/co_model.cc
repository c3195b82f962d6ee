// The waits of coroutines (api/co_wait.cc), between plain threads.
#include "gump/internal/co_loop.h"
#include "gump/internal/linkname.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

using internal::CoClaim;
using internal::CoWait;
using rt::ChanResult;

constexpr rt::ElemType kInt = {sizeof(int), alignof(int)};
rt::Hchan* c;
CoWait* wait;
CoClaim* claim;
int frame;  // written by the side that owns the coroutine's frame
rt::Atomic<int> owners;

// The value is sent after the coroutine is gone, so it must stay.
const Registered kCancel({
    .name = "co_cancel",
    .about = "a coroutine that waits for a channel is destroyed, then a value "
             "is sent",
    .setup =
        [] {
          c = rt::makechan(&kInt, 1);
          wait = new CoWait(/*stoppable=*/true);
          wait->Arm();
          plainThread("waiter", [] {
            int v = 0;
            check(wait->Do(c, &v, rt::SelectDir::kRecv) ==
                      ChanResult::kWouldBlock,
                  "a coroutine that is gone takes a value");
            wait->Unref();
          });
          plainThread("destroyer", [] {
            wait->Cancel();
            wait->Unref();
            int v = 1;
            check(rt::chansend(c, &v, false) == ChanResult::kOk, "sent");
          });
        },
    .quick = {3, 1, 200},
    .full = {4, 1, 20000},
});

void own() {
  frame++;
  owners.add(1, rt::relaxed);
}

const Registered kClaim({
    .name = "co_claim",
    .about = "a coroutine is resumed and destroyed at the same time",
    .setup =
        [] {
          claim = new CoClaim;
          claim->Arm();
          plainThread("resumer", [] {
            if (claim->Claim()) own();
          });
          plainThread("destroyer", [] {
            if (claim->TryCancel()) own();
          });
        },
    .finish = [] { check(owners.load(rt::relaxed) == 1, "owned by one side"); },
    .quick = {4, 1, 200},
    .full = {5, 1, 20000},
});

}  // namespace
}  // namespace gump::model
