// The kernel, as the runtime sees it.
//
// Invariants:
//  (O1) Nothing here changes errno. errno belongs to the user's code on the
//       calling goroutine. But the address of errno belongs to a thread, and a
//       goroutine may move to another thread. So most calls do not use libc's
//       wrappers. A function that must use one restores errno at its end, and
//       is not inlined. Otherwise the compiler could keep errno's address in a
//       caller that switches.
//  (O2) Nothing here allocates or takes a lock, except newosproc. Where a
//       standard descriptor is closed, a function that opens a file takes the
//       leaf of descriptor.cc as well.
//
// Rejected: syscall(2), which writes errno. glibc's futex-based primitives,
// which may be interposed.
#include "runtime/sys/os_linux.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "runtime/diag/panic.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/thread.h"
#include "runtime/sys/base.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/print.h"
#include "runtime/sys/raw_syscall.h"
#include "runtime/sys/sanitizer.h"

namespace gump::rt {
namespace {

constexpr int64_t kNsPerSec = 1000000000;

// ErrnoKeeper restores errno at the end of a scope, for calls that go through
// libc (O1). It is used only in functions that are GUMP_NOINLINE.
class ErrnoKeeper {
 public:
  ErrnoKeeper() : saved_(errno) {}
  ~ErrnoKeeper() { errno = saved_; }
  ErrnoKeeper(const ErrnoKeeper&) = delete;
  ErrnoKeeper& operator=(const ErrnoKeeper&) = delete;

 private:
  const int saved_;
};

timespec toTimespec(int64_t ns) {
  timespec ts;
  ts.tv_sec = static_cast<time_t>(ns / kNsPerSec);
  ts.tv_nsec = static_cast<long>(ns % kNsPerSec);
  return ts;
}

// readClock cannot fail for the two clocks that we ask for, so it never writes
// errno.
int64_t readClock(clockid_t clock) {
  timespec ts;
  clock_gettime(clock, &ts);
  return int64_t{ts.tv_sec} * kNsPerSec + ts.tv_nsec;
}

long membarrier(int cmd) {
  return rawSyscall(SYS_membarrier, cmd, 0, 0, 0, 0, 0);
}

// openAt opens a file. Returns a descriptor of 3 or above, or -errno.
int openAt(const char* path, int flags) {
  return aboveStandard(static_cast<int>(rawSyscall(
      SYS_openat, AT_FDCWD, asArg(path), flags | O_CLOEXEC, 0, 0, 0)));
}

void* threadMain(void* mp) {
  mstart(static_cast<M*>(mp));
  return nullptr;
}

}  // namespace

int64_t threadCpuTime(int32_t tid) {
  // The kernel's encoding of a thread's clock is the inverted id and two flags:
  // the clock is a thread's (4), and it counts the time that the scheduler gave
  // that thread (2).
  const auto clock =
      static_cast<clockid_t>(~static_cast<uint32_t>(tid) << 3 | 6);
  timespec ts;
  const long err = rawSyscall(SYS_clock_gettime, clock,
                              reinterpret_cast<long>(&ts), 0, 0, 0, 0);
  return err != 0 ? -1 : int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

uint64_t ownSleeps() {
  rusage usage = {};
  rawSyscall(SYS_getrusage, RUSAGE_THREAD, reinterpret_cast<long>(&usage), 0, 0,
             0, 0);
  return static_cast<uint64_t>(usage.ru_nvcsw);
}

int64_t nanotime() { return readClock(CLOCK_MONOTONIC); }
int64_t walltime() { return readClock(CLOCK_REALTIME); }

void usleep(uint32_t usec) {
  timespec ts = toTimespec(int64_t{usec} * 1000);
  // A signal ends the sleep early. The kernel then leaves the rest in ts.
  while (rawSyscall(SYS_nanosleep, asArg(&ts), asArg(&ts), 0, 0, 0, 0) ==
         -EINTR) {
  }
}

void osyield() { rawSyscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0); }

int32_t gettid() {
  return static_cast<int32_t>(rawSyscall(SYS_gettid, 0, 0, 0, 0, 0, 0));
}

void tgkill(int32_t tid, int sig) {
  const long pid = rawSyscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
  // The call fails with ESRCH if the thread has ended. That is harmless.
  rawSyscall(SYS_tgkill, pid, tid, sig, 0, 0, 0);
}

namespace {

// The descriptor of /proc/self/task, or a negative number. Written once, by
// schedinit.
int taskDir = -1;

struct stat taskDirAtStart;

// statFd is fstat. Returns false if it fails.
bool statFd(int fd, struct stat* st) {
  return rawSyscall(SYS_fstat, fd, asArg(st), 0, 0, 0, 0) == 0;
}

// openTask opens a file below /proc/self/task. The path comes first, because a
// program that closes descriptors which it has not opened may have closed
// taskDir, and the number may be another file's now.
// Returns a descriptor, or a negative errno.
long openTask(const char* name, long flags) {
  char path[64];
  Writer w{.buf = path, .cap = sizeof(path) - 1, .fd = kNoFd};
  print(&w, "/proc/self/task/%s", name);
  path[w.len] = '\0';
  const StandardHold hold;
  const int fd = openAt(path, static_cast<int>(flags));
  if (fd >= 0 || taskDir < 0) return fd;
  return aboveStandard(static_cast<int>(rawSyscall(
      SYS_openat, taskDir, asArg(name), flags | O_CLOEXEC, 0, 0, 0)));
}

void closeTask(long fd) { rawSyscall(SYS_close, fd, 0, 0, 0, 0, 0); }

}  // namespace

void taskDirInit() {
  taskDir = static_cast<int>(openTask(".", O_PATH | O_DIRECTORY));
  if (!statFd(taskDir, &taskDirAtStart)) taskDir = -1;
}

int64_t readTaskFile(const char* name, char* buf, size_t n) {
  const long fd = openTask(name, O_RDONLY);
  if (fd < 0) return -1;
  const long got =
      rawSyscall(SYS_read, fd, asArg(buf), static_cast<long>(n), 0, 0, 0);
  closeTask(fd);
  return got < 0 ? -1 : got;
}

int64_t threadCount() {
  // Opens nothing, because no descriptor may be free.
  struct stat st;
  if (rawSyscall(SYS_newfstatat, AT_FDCWD, asArg("/proc/self/task"), asArg(&st),
                 0, 0, 0) != 0) {
    // The number may be another file's by now: see openTask.
    if (!statFd(taskDir, &st) || st.st_dev != taskDirAtStart.st_dev ||
        st.st_ino != taskDirAtStart.st_ino) {
      return 0;
    }
  }
  // A directory has one link from itself, one from its name, and one from each
  // subdirectory.
  return static_cast<int64_t>(st.st_nlink) - 2;
}

namespace {

// isInert returns true if a thread, given by its name in /proc/self/task, runs
// no code of the program. Returns false if the thread has gone. The numbers
// parsed here do not overflow, so errno stays.
bool isInert(const char* name) {
  char path[64];
  Writer w{.buf = path, .cap = sizeof(path) - 1, .fd = kNoFd};
  print(&w, "%s/stat", name);
  path[w.len] = '\0';
  char text[512];
  const int64_t n = readTaskFile(path, text, sizeof(text) - 1);
  if (n <= 0) return false;
  text[n] = '\0';
  // "pid (comm) state ppid pgrp session tty tpgid flags"; comm may be anything.
  const char* comm = strchr(text, '(');
  const char* at = strrchr(text, ')');
  if (comm == nullptr || at == nullptr) return false;
  // Only the first thread can be a zombie. Other threads leave the list when
  // they end.
  if (strncmp(at, ") Z", 3) == 0) return true;
  for (int field = 0; at != nullptr && field < 7; field++) {
    at = strchr(at + 1, ' ');
  }
  // Both tests are needed: the bit was another flag in older kernels (PF_VCPU),
  // and any thread may have the name.
  constexpr uint64_t kPfIoWorker = 0x10;  // PF_IO_WORKER
  return at != nullptr && (strtoull(at, nullptr, 10) & kPfIoWorker) != 0 &&
         strncmp(comm, "(iou-", 5) == 0;
}

}  // namespace

size_t inertThreads(int32_t* tids, size_t n) {
  const long dir = openTask(".", O_RDONLY | O_DIRECTORY);
  if (dir < 0) return 0;
  size_t found = 0;
  alignas(dirent64) char buf[2048];
  long got;
  while ((got = rawSyscall(SYS_getdents64, dir, asArg(buf), sizeof(buf), 0, 0,
                           0)) > 0) {
    for (long at = 0; at < got && found < n;) {
      const auto* e = reinterpret_cast<const dirent64*>(buf + at);
      at += e->d_reclen;
      if (e->d_name[0] == '.' || !isInert(e->d_name)) continue;
      tids[found++] = static_cast<int32_t>(strtol(e->d_name, nullptr, 10));
    }
  }
  closeTask(dir);
  return found;
}

// The result is ignored. EAGAIN, EINTR and ETIMEDOUT mean "look at the word
// again", which all callers do. A mapped, aligned word causes no other errors.
void futexsleep(Atomic<uint32_t>* addr, uint32_t val, int64_t ns) {
  constexpr int64_t kLongest = kSanitizerLongestSleep;
  if (kLongest != INT64_MAX && (ns < 0 || ns > kLongest)) ns = kLongest;
  timespec ts;
  const timespec* timeout = nullptr;
  if (ns >= 0) {
    ts = toTimespec(ns);
    timeout = &ts;
  }
  rawSyscall(SYS_futex, asArg(addr->rawAddress()),
             FUTEX_WAIT | FUTEX_PRIVATE_FLAG, long{val}, asArg(timeout), 0, 0);
  sanitizerRunHandlers();
}

int32_t futexwakeup(Atomic<uint32_t>* addr, uint32_t cnt) {
  return static_cast<int32_t>(rawSyscall(SYS_futex, asArg(addr->rawAddress()),
                                         FUTEX_WAKE | FUTEX_PRIVATE_FLAG,
                                         long{cnt}, 0, 0, 0));
}

namespace {

// kPreciseSlack is the slack that preciseSleeps sets, in ns. It is not 1, which
// programs set, so that ordinarySleeps can tell ours from the program's.
constexpr long kPreciseSlack = 2;

// The slack of the thread that started the runtime.
long startSlack = -1;

}  // namespace

void sleepsInit() {
  startSlack = rawSyscall(SYS_prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0, 0);
}

void preciseSleeps(M* mp) {
  if (mp->preciseSleeps) return;
  mp->preciseSleeps = true;
  mp->timerSlack = rawSyscall(SYS_prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0, 0);
  rawSyscall(SYS_prctl, PR_SET_TIMERSLACK, kPreciseSlack, 0, 0, 0, 0);
}

void ordinarySleeps(M* mp) {
  const long now = rawSyscall(SYS_prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0, 0);
  long old = startSlack;
  if (mp != nullptr && mp->preciseSleeps) {
    mp->preciseSleeps = false;
    if (mp->timerSlack != kPreciseSlack) old = mp->timerSlack;
  }
  // If the program has set another slack since then, it keeps its own.
  if (now != kPreciseSlack || old < 0) return;
  rawSyscall(SYS_prctl, PR_SET_TIMERSLACK, old, 0, 0, 0, 0);
}

void setThreadName(const char* name) {
  rawSyscall(SYS_prctl, PR_SET_NAME, reinterpret_cast<long>(name), 0, 0, 0, 0);
}

constinit Atomic<Membarrier> membarrierState{Membarrier::kUnknown};

namespace {

// SchedAttr is sched_attr(2), which some headers lack.
struct SchedAttr {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime;  // the slice, in ns
  uint64_t deadline;
  uint64_t period;
};
constexpr uint64_t kShortestSlice = 100'000;  // ns; the kernel's limit

// get reads this thread's attributes. set writes them, and so keeps what the
// caller has not changed: the class, the niceness and the flags.
bool get(SchedAttr* attr) {
  return rawSyscall(SYS_sched_getattr, 0, asArg(attr), sizeof(*attr), 0, 0,
                    0) >= 0;
}
bool set(const SchedAttr& attr) {
  return rawSyscall(SYS_sched_setattr, 0, asArg(&attr), 0, 0, 0, 0) >= 0;
}

bool isRealTime(const SchedAttr& attr) {
  return attr.policy == SCHED_FIFO || attr.policy == SCHED_RR;
}

// setSlice sets this thread's slice and returns the old one. Returns 0 if the
// thread has no slice, already has this one, or the kernel refuses.
uint64_t setSlice(uint64_t ns) {
  SchedAttr attr{};
  if (!get(&attr)) return 0;
  const uint64_t old = attr.runtime;
  if (attr.policy != SCHED_OTHER || old == 0 || old == ns) return 0;
  attr.runtime = ns;
  return set(attr) ? old : 0;
}

}  // namespace

void declineSignals() {
  sigset_t set;
  sigfillset(&set);
  for (const int fault :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
    sigdelset(&set, fault);
  }
  // A dying process asks each thread for its stack with SIGQUIT.
  if (!kSanitizerDefersHandlers) sigdelset(&set, SIGQUIT);
  pthread_sigmask(SIG_SETMASK, &set, nullptr);
}

RunOnWake runOnWake() {
  return {.slice = setSlice(kShortestSlice), .priority = raisePriority()};
}

void undoRunOnWake(RunOnWake before) {
  lowerPriority(before.priority);
  if (before.slice == 0) return;
  // 0 sets the kernel's default slice, which follows later changes of that
  // default. If the thread had a slice of its own, the second call restores it.
  (void)setSlice(0);
  (void)setSlice(before.slice);
}

void queueOnWake() {
  SchedAttr attr{};
  if (!get(&attr) || attr.policy != SCHED_OTHER) return;
  attr.policy = SCHED_BATCH;
  attr.runtime = 0;  // the default slice
  (void)set(attr);   // if it is denied, the thread is only more eager
}

uint32_t raisePriority() {
  SchedAttr attr{};
  if (!get(&attr) || !isRealTime(attr)) return 0;
  const uint32_t old = attr.priority++;
  return set(attr) ? old : 0;  // EINVAL if old was the highest
}

void lowerPriority(uint32_t old) {
  if (old == 0) return;
  SchedAttr attr{};
  if (!get(&attr) || !isRealTime(attr) || attr.priority != old + 1) return;
  attr.priority = old;
  (void)set(attr);  // lowering needs no privilege
}

void threadName(char (*name)[kThreadNameMax]) {
  rawSyscall(SYS_prctl, PR_GET_NAME, asArg(name), 0, 0, 0, 0);
}

void membarrierInit() {
  const long offered = membarrier(MEMBARRIER_CMD_QUERY);
  const bool works = offered >= 0 &&
                     (offered & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
                     membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  // Relaxed: see haveMembarrier.
  membarrierState.store(works ? Membarrier::kWorks : Membarrier::kDenied,
                        relaxed);
}

void asymmetricHeavy() {
  if (GUMP_UNLIKELY(membarrierState.load(relaxed) == Membarrier::kUnknown)) {
    membarrierInit();
  }
  if (!haveMembarrier()) {
    // Both sides use a fence. In lockSlow: add sleepers, then load key. In
    // unlock (lock_futex.h): store key, then load sleepers.
    fence(seq_cst);
    return;
  }
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) {
    fatalthrow("membarrier failed after registration");
  }
}

int32_t getproccount() {
  // 64 Ki processors, as in Go, because the kernel refuses a buffer that is
  // smaller than its own mask.
  constexpr size_t kWords = 65536 / 64;
  uint64_t mask[kWords] = {};
  const long n =
      rawSyscall(SYS_sched_getaffinity, 0, sizeof(mask), asArg(mask), 0, 0, 0);
  if (n < 0) return 1;
  int32_t count = 0;
  for (size_t i = 0; i < static_cast<size_t>(n) / sizeof(mask[0]); i++) {
    count += __builtin_popcountll(mask[i]);
  }
  return count > 0 ? count : 1;
}

GUMP_NOINLINE void* sysReserve(size_t n) {
  ErrnoKeeper keeper;
  void* p = mmap(nullptr, n, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

GUMP_NOINLINE int sysReserveAt(uintptr_t at, size_t n) {
  ErrnoKeeper keeper;
  void* want = reinterpret_cast<void*>(at);
  void* p = mmap(
      want, n, PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (p == want) return 0;
  if (p == MAP_FAILED) return errno;
  munmap(p, n);  // the kernel does not know the flag and chose another place
  return EEXIST;
}

GUMP_NOINLINE void sysFree(void* p, size_t n) {
  ErrnoKeeper keeper;
  munmap(p, n);
}

void sysName(void* p, size_t n, const char* name) {
  // PR_SET_VMA and PR_SET_VMA_ANON_NAME, which some headers lack.
  constexpr long kPrSetVma = 0x53564d41;
  constexpr long kPrSetVmaAnonName = 0;
  rawSyscall(SYS_prctl, kPrSetVma, kPrSetVmaAnonName, asArg(p),
             static_cast<long>(n), asArg(name), 0);
}

void sysPreferNode(void* p, size_t n, int32_t node) {
  constexpr long kPreferred = 1;      // MPOL_PREFERRED of linux/mempolicy.h
  constexpr int32_t kMaxNode = 1024;  // the highest MAX_NUMNODES
  constexpr int32_t kBits = 64;
  uint64_t mask[kMaxNode / kBits] = {};
  if (node < 0 || node >= kMaxNode) return;
  mask[node / kBits] = uint64_t{1} << (node % kBits);
  // The kernel takes one bit less than it is told.
  rawSyscall(SYS_mbind, asArg(p), static_cast<long>(n), kPreferred, asArg(mask),
             kMaxNode + 1, 0);
}

// The thread gets the stack size that the user set for threads (ulimit -s,
// pthread_setattr_default_np), because user code may run on it: a TLS
// destructor, or a signal handler without a stack of its own.
GUMP_NOINLINE int newosproc(M* mp) {
  ErrnoKeeper keeper;
  pthread_attr_t attr;
  int err = pthread_attr_init(&attr);
  if (err != 0) return err;
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  // Signals stay blocked until mstart has set the thread up, as in Go.
  sigset_t all;
  sigset_t mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  mp->sigmask = mask;  // for minitSignalMask
  err = pthread_create(&thread, &attr, threadMain, mp);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  pthread_attr_destroy(&attr);
  return err;
}

}  // namespace gump::rt
