#include "api/hooks/waking.h"

#include "runtime/sched/extram.h"
#include "runtime/sched/fork.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/tls.h"

namespace gump::hooks {

Waking::Waking() {
  rt::G* gp = rt::getg();
  if (!rt::inOwnProcess()) return;
  if (gp == nullptr) {
    rt::needm();
    gp = rt::getg();
  } else if (gp == &gp->m->g0 || gp->m->locks.load(rt::relaxed) != 0) {
    return;
  }
  mp_ = gp->m;
  lost_ = rt::acquiremNoPark(mp_);
}

Waking::~Waking() {
  if (mp_ == nullptr) return;
  if (lost_) rt::markPLost(mp_);
  rt::releasem(mp_);
}

}  // namespace gump::hooks
