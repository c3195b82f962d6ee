// gump/sync.h: every type of the package.
#include <gump/go.h>
#include <gump/sync.h>

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

int Main() {
  sync::Mutex mu;
  sync::RWMutex rw;
  sync::Cond cond{mu};
  sync::Once once;
  sync::WaitGroup wg;
  sync::Semaphore semaphore(2);
  sync::Map<std::string, int> map;
  sync::Pool<int> pool{[] { return std::make_unique<int>(1); }};
  sync::Queue<int> queue;
  sync::Stack<int> stack;
  sync::List<int> list;
  auto value = sync::OnceValue([] { return 7; });
  int sum = 0;
  for (int i = 0; i < 10; i++) {
    wg.Go([&, i] {
      semaphore.Acquire();
      std::scoped_lock hold(mu);
      sum += i;
      once.Do([&] { map.Store("first", i); });
      queue.Push(i);
      stack.Push(i);
      list.PushBack(i);
      semaphore.Release();
      cond.Broadcast();
    });
  }
  {
    std::scoped_lock hold(mu);
    cond.Wait([&] { return sum == 45; });
  }
  wg.Wait();
  rw.RLock();
  rw.RUnlock();
  { std::shared_lock hold(rw); }
  bool ok = map.Load("first").has_value() && value() == 7;
  ok = ok && queue.Pop() && stack.Pop() && list.Len() == 10 && *pool.Get() == 1;

  sync::ErrGroup group;
  group.SetLimit(2);
  group.Go([] { return absl::OkStatus(); });
  group.Go([] { return absl::DataLossError("lost"); });
  ok = ok && group.Wait() == absl::DataLossError("lost");

  sync::SingleFlight<std::string, int> flight;
  ok = ok && flight.Do("key", [] { return 3; }).value == 3;
  auto outcome = flight.DoChan("key", [] { return 4; }).Recv();
  return ok && outcome->value() == 4 ? 0 : 1;
}

}  // namespace

int main() { return Run(Main); }
