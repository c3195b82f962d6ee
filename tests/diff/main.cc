// Runs the program of a seed: diff_programs SEED.
#include "tests/diff/prelude.h"

void Go(Task t) { go(t); }
void GoIn(const WG& w, Task t) { w->Go(t); }
time::Timer After(absl::Duration d, Task t) { return time::AfterFunc(d, t); }

int main(int argc, char** argv) {
  const int seed = argc > 1 ? std::atoi(argv[1]) : 0;
  for (int i = 0; i < kProgramCount; i++) {
    if (kPrograms[i].seed != seed) continue;
    return Run([i] {
      static Out out;
      kPrograms[i].run(out);
    });
  }
  std::fprintf(stderr, "no program %d\n", seed);
  return 3;
}
