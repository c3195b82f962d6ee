// The searches through all schedules of a model, and the command line.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/debugging/symbolize.h"
#include "absl/strings/numbers.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sys/lock_futex.h"
#include "tests/model/state.h"

namespace gump::model {

namespace {

constexpr int kMaxModels = 256;
constinit Model models[kMaxModels];
int nmodels;

double seconds() {
  timespec ts;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
  return static_cast<double>(ts.tv_sec) +
         static_cast<double>(ts.tv_nsec) * 1e-9;
}

// nextChoices moves on to the next schedule. Returns false if there is none.
bool nextChoices() {
  ck->nchoices = ck->depth;
  while (ck->nchoices > 0) {
    Choice& c = ck->choices[ck->nchoices - 1];
    if (++c.taken < c.of) return true;
    ck->nchoices--;
  }
  return false;
}

struct Tally {
  uint64_t schedules = 0;  // run to their end
  uint64_t equal = 0;      // given up by a reduction
  uint64_t points = 0;
};

End searchAll(Tally* tally) {
  ck->nchoices = 0;
  for (;;) {
    ck->newShared = false;
    const End e = run();
    tally->points += ck->points;
    (e == End::kEqual ? tally->equal : tally->schedules)++;
    if (e == End::kFailed) return e;
    if (ck->newShared) {
      ck->nchoices = 0;  // (E1)
    } else if (!nextChoices()) {
      return End::kDone;
    }
  }
}

End searchRandom(uint64_t seed, int n, Tally* tally) {
  const uint32_t length = ck->maxPoints + 1;
  for (const uint64_t end = seed + static_cast<uint64_t>(n); seed < end;
       seed++) {
    // Above 0, for xorshift.
    ck->rand = std::max(seed * 0x9e3779b97f4a7c15u, uint64_t{1});
    for (uint32_t& at : ck->changes) {
      at = static_cast<uint32_t>(random64() % length);
    }
    const End e = run();
    tally->points += ck->points;
    tally->schedules++;
    if (e == End::kFailed) return e;
  }
  return End::kDone;
}

void printSchedule() {
  printf("  schedule: ");
  for (uint32_t i = 0; i < ck->nnotes; i++) {
    const Note& n = ck->notes[i];
    printf("%s%u%c%d", i == 0 ? "" : ",", n.point, n.kind, n.value);
  }
  printf("%s\n", ck->nnotes == 0 ? "usual" : "");
}

bool parseSchedule(const char* s) {
  ck->nreplay = 0;
  if (strcmp(s, "usual") == 0) return true;
  while (*s != '\0') {
    Note n{};
    int used = 0;
    if (sscanf(s, "%u%c%d%n", &n.point, &n.kind, &n.value, &used) != 3 ||
        ck->nreplay == kMaxChoices) {
      return false;
    }
    ck->replay[ck->nreplay++] = n;
    s += used;
    if (*s == ',') s++;
  }
  return true;
}

void setUp(const Model* m) {
  ck->model = m;
  ck->current = -1;
  ck->now = 1'000'000'000;
  ck->rand = 88172645463325252u;
  // So no thread spins before it sleeps: that would only cost points.
  rt::ncpu.store(1, rt::relaxed);
  rt::gomaxprocs.store(2, rt::relaxed);
  useArena(true);
  if (m->common != nullptr) m->common();
  m->setup();
  useArena(false);
  beginHere();
}

struct Arguments {
  bool full = false;
  uint64_t seed = 1;  // the first of the random schedules
  int preemptions = -1, delays = -1, random = -1;  // -1: as the model has it
  const char* schedule = nullptr;
  const char* names[kMaxModels];
  int n = 0;
};

Bounds boundsOf(const Model* m, const Arguments& a) {
  Bounds b = a.full ? m->full : m->quick;
  if (a.preemptions >= 0 || a.delays >= 0) b.delayed = INT_MAX;
  if (a.preemptions >= 0) b.preemptions = a.preemptions;
  if (a.delays >= 0) b.delays = a.delays;
  if (a.random >= 0) b.random = a.random;
  return b;
}

// onFatalSignal prints the schedule in which the signal came. It runs on a
// stack of its own.
void onFatalSignal(int signal) {
  printf("%s: FAILED: killed by signal %d\n", ck->model->name, signal);
  printSchedule();
  _exit(1);
}

void handleFatalSignals() {
  // Not a variable, which every schedule would put back.
  constexpr size_t kSize = 64 << 10;
  const stack_t alternate = {
      .ss_sp = malloc(kSize), .ss_flags = 0, .ss_size = kSize};
  sigaltstack(&alternate, nullptr);
  struct sigaction act = {};
  act.sa_handler = onFatalSignal;
  act.sa_flags = SA_ONSTACK | SA_RESETHAND;
  for (int s : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    sigaction(s, &act, nullptr);
  }
}

int explore(const Model* m, const Arguments& a) {
  const double begin = seconds();
  setUp(m);
  const Bounds bounds = boundsOf(m, a);
  Tally all, last;
  End e = End::kDone;
  ck->search = Search::kExhaustive;
  for (int p = 0; p <= bounds.preemptions && e == End::kDone; p++) {
    const bool delays = p != 0 && p <= bounds.delayed;
    ck->bounds = {p, delays ? bounds.delays : 0, 0};
    last = Tally();
    e = searchAll(&last);
    all.points += last.points;
  }
  Tally random;
  if (e == End::kDone) {
    ck->search = Search::kRandom;
    ck->bounds = bounds;
    e = searchRandom(a.seed, bounds.random, &random);
    all.points += random.points;
  }
  const double s = seconds() - begin;
  printf("%-16s %8" PRIu64 " schedules, %d preemptions, %d delays, %6" PRIu64
         " random, %6.2f s, %.1f M points/s\n",
         m->name, last.schedules, ck->bounds.preemptions, bounds.delays,
         random.schedules, s, static_cast<double>(all.points) / s * 1e-6);
  if (e != End::kFailed) return 0;
  printf("%s: FAILED: %s\n", m->name, ck->why);
  printSchedule();
  return 1;
}

int replay(const Model* m, const char* schedule) {
  setUp(m);
  if (!parseSchedule(schedule)) {
    fprintf(stderr, "model: bad schedule: %s\n", schedule);
    return 2;
  }
  ck->search = Search::kReplay;
  ck->trace = true;
  const End e = run();
  printf("%s: %s%s\n", m->name, e == End::kFailed ? "FAILED: " : "passed",
         e == End::kFailed ? ck->why : "");
  return e == End::kFailed ? 1 : 0;
}

}  // namespace

Registered::Registered(const Model& m) {
  if (nmodels == kMaxModels) {
    fprintf(stderr, "gump_model: too many models\n");
    abort();
  }
  models[nmodels++] = m;
}

namespace {

// inChild runs a model in a process of its own, because the library can be
// started only once in a process.
int inChild(const Model* m, const Arguments& a) {
  const pid_t pid = fork();
  if (pid == 0) {
    handleFatalSignals();
    _exit(a.schedule != nullptr ? replay(m, a.schedule) : explore(m, a));
  }
  int status = 2;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) {
    perror("model: fork");
    return 2;
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  printf("%s: FAILED: killed by signal %d\n", m->name, WTERMSIG(status));
  return 1;
}

// parseNumber takes the value of an option, if it is this one.
template <class T>
bool parseNumber(const char* option, int argc, char** argv, int* i, T* out) {
  if (strcmp(argv[*i], option) != 0 || *i + 1 >= argc) return false;
  return absl::SimpleAtoi(argv[++*i], out);
}

bool parse(int argc, char** argv, Arguments* a) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--full") == 0) {
      a->full = true;
    } else if (strcmp(argv[i], "--replay") == 0 && i + 1 < argc) {
      a->schedule = argv[++i];
    } else if (parseNumber("--seed", argc, argv, &i, &a->seed) ||
               parseNumber("--preemptions", argc, argv, &i, &a->preemptions) ||
               parseNumber("--delays", argc, argv, &i, &a->delays) ||
               parseNumber("--random", argc, argv, &i, &a->random)) {
      continue;
    } else if (strcmp(argv[i], "--list") == 0) {
      for (int k = 0; k < nmodels; k++) {
        printf("%-16s %s\n", models[k].name, models[k].about);
      }
    } else if (argv[i][0] == '-' || a->n == kMaxModels) {
      return false;
    } else {
      a->names[a->n++] = argv[i];
    }
  }
  return true;
}

bool wanted(const Arguments& a, const char* name) {
  for (int i = 0; i < a.n; i++) {
    if (strcmp(a.names[i], name) == 0) return true;
  }
  return a.n == 0;
}

}  // namespace

int mainOf(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  absl::InitializeSymbolizer(argv[0]);
  Arguments a;
  if (!parse(argc, argv, &a)) {
    fprintf(stderr,
            "usage: gump_model [--full] [--preemptions N] [--delays N] "
            "[--random N] [--seed N] [NAME...]\n"
            "       gump_model NAME --replay SCHEDULE | --list\n");
    return 2;
  }
  if (argc == 2 && strcmp(argv[1], "--list") == 0) return 0;
  void* p = mmap(nullptr, sizeof(Checker), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ck = static_cast<Checker*>(p);
  ck->current = -1;
  racesBegin();
  int ran = 0;
  int worst = 0;
  for (int k = 0; k < nmodels; k++) {
    if (!wanted(a, models[k].name)) continue;
    ran++;
    worst = std::max(worst, inChild(&models[k], a));
  }
  if (ran < a.n) {
    fprintf(stderr, "model: no such model; --list names them\n");
    return 2;
  }
  return worst;
}

}  // namespace gump::model

int main(int argc, char** argv) { return gump::model::mainOf(argc, argv); }
