// Hooked calls that another thread makes for the goroutine, which parks.
//
// For most of them there is a form that does not wait. It is tried first.
#include <fcntl.h>
#include <netdb.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "api/hooks/wait.h"
#include "api/net/lookup.h"
#include "gump/sync/semaphore.h"

namespace gump::hooks {
namespace {

// LendOrStay makes a call that waits.
template <class Call>
auto LendOrStay(Way way, Call call) {
  if (way == Way::kDirect) return call();
  return way == Way::kPark && Clean() ? Lend(call) : Stay(call);
}

// ---- Names ------------------------------------------------------------------

// LookUp makes a call that asks for a name.
template <class Call>
int LookUp(Call call) {
  const Way way = WayHere();
  if (way != Way::kPark || !Clean()) {
    return way == Way::kDirect ? call() : Stay(call);
  }
  sync::Semaphore& slots = internal::LookupSlots();
  slots.Acquire();
  const int r = Lend(call);
  slots.Release();
  return r;
}

int GetAddrInfo(const char* node, const char* service, const addrinfo* hints,
                addrinfo** found) {
  const auto call = [=] {
    return Libc().getaddrinfo(node, service, hints, found);
  };
  const bool numeric = node == nullptr ||
                       (hints != nullptr && (hints->ai_flags & AI_NUMERICHOST));
  return numeric ? call() : LookUp(call);
}

int GetNameInfo(const sockaddr* a, socklen_t size, char* host,
                socklen_t hostSize, char* service, socklen_t serviceSize,
                int flags) {
  const auto call = [=] {
    return Libc().getnameinfo(a, size, host, hostSize, service, serviceSize,
                              flags);
  };
  const bool numeric = host == nullptr || (flags & NI_NUMERICHOST) != 0;
  return numeric ? call() : LookUp(call);
}

int GetHostByName(const char* name, hostent* h, char* buf, size_t n,
                  hostent** found, int* err) {
  return LookUp(
      [=] { return Libc().gethostbyname_r(name, h, buf, n, found, err); });
}

int GetHostByName2(const char* name, int family, hostent* h, char* buf,
                   size_t n, hostent** found, int* err) {
  return LookUp([=] {
    return Libc().gethostbyname2_r(name, family, h, buf, n, found, err);
  });
}

int GetHostByAddr(const void* a, socklen_t size, int family, hostent* h,
                  char* buf, size_t n, hostent** found, int* err) {
  return LookUp([=] {
    return Libc().gethostbyaddr_r(a, size, family, h, buf, n, found, err);
  });
}

// ---- Locks of files ---------------------------------------------------------

int FLock(int fd, int op) {
  const Way way = WayHere();
  const auto call = [=] { return Libc().flock(fd, op); };
  if (way == Way::kDirect || (op & LOCK_NB) != 0) return call();
  const ErrnoGuard guard;
  const int r = Libc().flock(fd, op | LOCK_NB);
  if (r == 0 || !WouldBlock(errno)) return guard.Return(r);
  return guard.Return(LendOrStay(way, call));
}

int LockF(int fd, int op, off_t n) {
  const Way way = WayHere();
  const auto call = [=] { return Libc().lockf(fd, op, n); };
  if (way == Way::kDirect || op != F_LOCK) return call();
  const ErrnoGuard guard;
  const int r = Libc().lockf(fd, F_TLOCK, n);
  if (r == 0 || (!WouldBlock(errno) && errno != EACCES)) return guard.Return(r);
  return guard.Return(LendOrStay(way, call));
}

int FCntl(int fd, int op, long arg) {
  const auto call = [=] { return Libc().fcntl(fd, op, arg); };
  if (op != F_SETLKW && op != F_OFD_SETLKW) return call();
  const Way way = WayHere();
  if (way == Way::kDirect) return call();
  const ErrnoGuard guard;
  const int r = Libc().fcntl(fd, op == F_SETLKW ? F_SETLK : F_OFD_SETLK, arg);
  if (r == 0 || (!WouldBlock(errno) && errno != EACCES)) return guard.Return(r);
  return guard.Return(LendOrStay(way, call));
}

// ---- Children ---------------------------------------------------------------

pid_t Wait4(pid_t pid, int* status, int options, rusage* use) {
  const Way way = WayHere();
  const auto call = [=] { return Libc().wait4(pid, status, options, use); };
  // A thread may wait for its own children only.
  constexpr int kAsItIs = WNOHANG | static_cast<int>(__WNOTHREAD);
  if (way == Way::kDirect || (options & kAsItIs) != 0) return call();
  const ErrnoGuard guard;
  const pid_t r = Libc().wait4(pid, status, options | WNOHANG, use);
  if (r != 0) return guard.Return(r);
  return guard.Return(LendOrStay(way, call));
}

pid_t WaitPid(pid_t pid, int* status, int options) {
  return Wait4(pid, status, options, nullptr);
}

int WaitId(idtype_t type, id_t id, siginfo_t* info, int options) {
  const Way way = WayHere();
  const auto call = [=] { return Libc().waitid(type, id, info, options); };
  constexpr int kAsItIs = WNOHANG | static_cast<int>(__WNOTHREAD);
  if (way == Way::kDirect || (options & kAsItIs) != 0) return call();
  const ErrnoGuard guard;
  siginfo_t ready{};
  // Whether there is something is asked without taking it.
  const int r = Libc().waitid(type, id, &ready, options | WNOHANG | WNOWAIT);
  if (r != 0 || ready.si_pid != 0) return guard.Return(call());
  return guard.Return(LendOrStay(way, call));
}

// ---- Disks ------------------------------------------------------------------

int FSync(int fd) {
  return LendOrStay(WayHere(), [=] { return Libc().fsync(fd); });
}

int FDataSync(int fd) {
  return LendOrStay(WayHere(), [=] { return Libc().fdatasync(fd); });
}

}  // namespace

void AddLentCalls(Table* t) {
  t->getaddrinfo = GetAddrInfo;
  t->getnameinfo = GetNameInfo;
  t->gethostbyname_r = GetHostByName;
  t->gethostbyname2_r = GetHostByName2;
  t->gethostbyaddr_r = GetHostByAddr;
  t->flock = FLock;
  t->lockf = LockF;
  t->fcntl = FCntl;
  t->waitpid = WaitPid;
  t->wait4 = Wait4;
  t->waitid = WaitId;
  t->fsync = FSync;
  t->fdatasync = FDataSync;
}

}  // namespace gump::hooks
