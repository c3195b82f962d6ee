// The two protocols of a Scope (api/scope_join.cc), between plain threads.
#include "gump/internal/linkname.h"
#include "gump/internal/scope_join.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

using internal::ScopeCount;
using internal::ScopeTask;

ScopeCount* count;
int work[3];

const Registered kScopeCount({
    .name = "scope_count",
    .about = "Scope: three goroutines, one from another; the owner destroys it",
    .setup =
        [] {
          count = new ScopeCount;
          nameWord(count, "count");
          check(count->EnterByOwner() && count->EnterByOwner(), "refused");
          plainThread("owner", [] {
            count->Join();
            check(count->Over(), "not over");
            check(!count->Enter() && !count->EnterByOwner(), "not refused");
            check(work[0] == 1 && work[1] == 1 && work[2] == 1,
                  "Join returned early");
            delete count;
          });
          plainThread("a", [] {
            work[0] = 1;
            check(count->Enter(), "refused");
            count->Leave();
            work[1] = 1;
            count->Leave();
          });
          plainThread("b", [] {
            work[2] = 1;
            count->Leave();
          });
        },
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

// A goroutine of a scope inside of this one, with the same owner, calls Go
// while the owner is in Join. It is refused, or Join waits for what it starts.
const Registered kScopeLate({
    .name = "scope_late",
    .about = "Scope: a Go that nothing orders before the end of Wait",
    .setup =
        [] {
          count = new ScopeCount;
          nameWord(count, "count");
          check(count->EnterByOwner(), "refused");
          plainThread("owner", [] {
            count->Join();
            check(work[0] == 1, "Join returned early");
            work[1]++;
          });
          plainThread("a", [] {
            work[0] = 1;
            count->Leave();
          });
          plainThread("inner", [] {
            if (!count->Enter()) return;
            work[1]++;
            count->Leave();
          });
        },
    .quick = {3, 1, 500},
    .full = {4, 1, 20000},
});

int result;
int destroyed;

// destroyTask sees what both sides have done before they let go.
void destroyTask(ScopeTask* task) {
  check(result == 1 && work[0] == 1, "destroyed early");
  destroyed++;
  delete task;
}

ScopeTask* task;

const Registered kScopeJoin({
    .name = "scope_join",
    .about = "Scope: a handle joins a goroutine, and drops it",
    .setup =
        [] {
          task = new ScopeTask(destroyTask);
          nameWord(task, "task");
          plainThread("handle", [] {
            task->Join();
            check(result == 1, "Join returned early");
            work[0] = 1;
            task->Drop();
          });
          plainThread("goroutine", [] {
            result = 1;
            task->End();
          });
        },
    .finish = [] { check(destroyed == 1, "not destroyed once"); },
});

const Registered kScopeDrop({
    .name = "scope_drop",
    .about = "Scope: a handle is dropped while the goroutine ends",
    .setup =
        [] {
          task = new ScopeTask(destroyTask);
          nameWord(task, "task");
          plainThread("handle", [] {
            work[0] = 1;
            task->Drop();
          });
          plainThread("goroutine", [] {
            result = 1;
            task->End();
          });
        },
    .finish = [] { check(destroyed == 1, "not destroyed once"); },
});

}  // namespace
}  // namespace gump::model
