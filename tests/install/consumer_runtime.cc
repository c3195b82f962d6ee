// gump/runtime.h: the packages runtime and debug.
#include <gump/runtime.h>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

int Main() {
  runtime::Gosched();
  bool ok = runtime::GOMAXPROCS(0) >= 1 && runtime::NumCPU() >= 1 &&
            runtime::NumGoroutine() >= 1 && runtime::Goid() == 1;
  runtime::LockOSThread();
  runtime::UnlockOSThread();
  go([] { runtime::Goexit(); });
  runtime::Retire(new int(1));
  runtime::SetFinalizer([] {});
  runtime::GC();
  debug::FreeOSMemory();
  runtime::SetDefaultGOMAXPROCS();
  ok = ok && runtime::Stack(/*all=*/true).starts_with("goroutine ");
  const int threads = debug::SetMaxThreads(10000);
  debug::SetMaxThreads(threads);
  return ok && debug::ReadSchedStats().procs >= 1 ? 0 : 1;
}

}  // namespace

int main() { return Run(Main); }
