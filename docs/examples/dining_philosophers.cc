// Philosophers sit around a table, and each shares a fork with each neighbour.
// Each philosopher first takes the fork with the lower number, so one of them
// can always eat. If they took the left fork first instead, the runtime might
// well report "all goroutines are asleep - deadlock!".
//
//   dining_philosophers [PHILOSOPHERS [MEALS]]
//
// The default is 5 philosophers and 1000 meals each.
#include <gump/gump.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

using namespace gump;

namespace {

struct Table {
  explicit Table(size_t n) : forks(n), meals(n, 0) {}

  std::vector<sync::Mutex> forks;
  std::vector<int> meals;  // [i] is written by philosopher i alone
};

void Dine(Table& table, size_t seat, int meals) {
  const size_t left = seat;
  const size_t right = (seat + 1) % table.forks.size();
  sync::Mutex& first = table.forks[std::min(left, right)];
  sync::Mutex& second = table.forks[std::max(left, right)];
  for (int i = 0; i < meals; i++) {
    std::unique_lock<sync::Mutex> take_one(first);
    // Think with one fork in hand, so that the neighbours want that fork.
    runtime::Gosched();
    std::unique_lock<sync::Mutex> take_other(second);
    table.meals[seat]++;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int philosophers = argc > 1 ? std::atoi(argv[1]) : 5;
  const int meals = argc > 2 ? std::atoi(argv[2]) : 1000;
  if (philosophers < 2) {
    std::fprintf(stderr, "dining_philosophers: a table needs two forks\n");
    return 2;
  }
  return Run([philosophers, meals] {
    Table table(static_cast<size_t>(philosophers));
    sync::WaitGroup dinner;
    for (size_t seat = 0; seat < table.meals.size(); seat++) {
      dinner.Go([&table, seat, meals] { Dine(table, seat, meals); });
    }
    dinner.Wait();
    const auto [least, most] =
        std::minmax_element(table.meals.begin(), table.meals.end());
    std::printf("%d philosophers ate %d to %d meals each\n", philosophers,
                *least, *most);
  });
}
