// Hooked calls that wait for several descriptors.
//
// Each look at the descriptors is libc's own call with a time limit of 0, so
// results are always the kernel's.
#include <fcntl.h>
#include <sys/select.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "api/hooks/wait.h"
#include "gump/internal/linkname_time.h"

namespace gump::hooks {
namespace {

bool IsPast(int64_t when) { return when != kNever && TimeFromNow(0) >= when; }

// PollUntil is poll(2) until `when`.
int PollUntil(pollfd* fds, nfds_t n, int64_t when) {
  const ErrnoGuard guard;
  for (bool over = false;;) {
    const int r = LookAt(fds, n);
    if (r != 0 || over) return guard.Return(r);
    const Awaited got = Await(fds, n, when);
    if (got == Awaited::kImpossible || !Clean()) break;
    over = got == Awaited::kTimeout || IsPast(when);
  }
  return guard.Return(Stay([=] {
    timespec rest{};
    if (when == kNever) return Libc().ppoll(fds, n, nullptr, nullptr);
    const int64_t left = std::max<int64_t>(when - TimeFromNow(0), 0);
    rest = {left / 1'000'000'000, left % 1'000'000'000};
    return Libc().ppoll(fds, n, &rest, nullptr);
  }));
}

int Poll(pollfd* fds, nfds_t n, int ms) {
  const Way way = WayHere();
  if (way == Way::kDirect || ms == 0) return Libc().poll(fds, n, ms);
  if (way == Way::kStay || !Clean()) {
    return Stay([=] { return Libc().poll(fds, n, ms); });
  }
  return PollUntil(fds, n,
                   ms < 0 ? kNever : TimeFromNow(int64_t{ms} * 1'000'000));
}

int PPoll(pollfd* fds, nfds_t n, const timespec* limit, const sigset_t* mask) {
  const Way way = WayHere();
  const auto call = [=] { return Libc().ppoll(fds, n, limit, mask); };
  if (way == Way::kDirect) return call();
  const bool bad =
      limit != nullptr && (limit->tv_sec < 0 || limit->tv_nsec < 0 ||
                           limit->tv_nsec >= 1'000'000'000);
  if (way == Way::kStay || mask != nullptr || bad || !Clean()) {
    return Stay(call);
  }
  return PollUntil(
      fds, n, limit == nullptr ? kNever : TimeFromNow(Nanoseconds(*limit)));
}

// Sets are the three sets of a select, copied, because the kernel overwrites
// them.
class Sets {
 public:
  Sets(int n, fd_set* r, fd_set* w, fd_set* e) : n_(n), user_{r, w, e} {
    for (int i = 0; i < 3; i++) {
      if (user_[i] == nullptr) continue;
      wanted_[i].resize(Words());
      std::memcpy(wanted_[i].data(), user_[i], Words() * sizeof(fd_mask));
    }
  }

  // Restore gives the program's sets their first values.
  void Restore() {
    for (int i = 0; i < 3; i++) {
      if (user_[i] == nullptr) continue;
      std::memcpy(user_[i], wanted_[i].data(), Words() * sizeof(fd_mask));
    }
  }

  // Block is select until `when`.
  int Block(int64_t when) {
    Restore();
    if (when == kNever) {
      return Libc().select(n_, user_[0], user_[1], user_[2], nullptr);
    }
    const int64_t left = std::max<int64_t>(when - TimeFromNow(0), 0);
    timeval limit{left / 1'000'000'000, left % 1'000'000'000 / 1000};
    return Libc().select(n_, user_[0], user_[1], user_[2], &limit);
  }

  // Look is select with a time limit of 0.
  int Look() {
    Restore();
    for (;;) {
      timeval now{};
      const int r = Libc().select(n_, user_[0], user_[1], user_[2], &now);
      if (r >= 0 || errno != EINTR) return r;  // as in LookAt
    }
  }

  // Descriptors returns what the sets want, for Await. As in the kernel,
  // numbers beyond its table of descriptors do not count. They are not open.
  std::vector<pollfd> Descriptors() const {
    std::vector<pollfd> all;
    for (int fd = 0; fd < n_; fd++) {
      short events = 0;
      if (Wants(0, fd)) events |= POLLIN;
      if (Wants(1, fd)) events |= POLLOUT;
      if (Wants(2, fd)) events |= POLLPRI;
      if (events != 0 && Libc().fcntl(fd, F_GETFD, 0) >= 0) {
        all.push_back({fd, events, 0});
      }
    }
    return all;
  }

 private:
  static constexpr int kBits = 8 * sizeof(fd_mask);

  size_t Words() const { return static_cast<size_t>((n_ + kBits - 1) / kBits); }
  bool Wants(int set, int fd) const {
    const auto at = static_cast<size_t>(fd);
    return !wanted_[set].empty() &&
           (wanted_[set][at / kBits] >> (at % kBits) & 1) != 0;
  }

  const int n_;
  fd_set* const user_[3];
  std::vector<fd_mask> wanted_[3];
};

// SelectUntil is select until `when`.
int SelectUntil(int n, fd_set* r, fd_set* w, fd_set* e, int64_t when) {
  const ErrnoGuard guard;
  Sets sets(n, r, w, e);
  const std::vector<pollfd> fds = sets.Descriptors();
  for (bool over = false;;) {
    const int got = sets.Look();
    if (got != 0 || over) return guard.Return(got);
    const Awaited a = Await(fds.data(), fds.size(), when);
    if (a == Awaited::kImpossible || !Clean()) {
      return guard.Return(Stay([&] { return sets.Block(when); }));
    }
    over = a == Awaited::kTimeout || IsPast(when);
  }
}

int Select(int n, fd_set* r, fd_set* w, fd_set* e, timeval* limit) {
  const Way way = WayHere();
  const auto call = [=] { return Libc().select(n, r, w, e, limit); };
  if (way == Way::kDirect) return call();
  const bool bad =
      n < 0 || n > FD_SETSIZE ||
      (limit != nullptr && (limit->tv_sec < 0 || limit->tv_usec < 0));
  if (way == Way::kStay || bad || !Clean()) return Stay(call);
  if (limit == nullptr) return SelectUntil(n, r, w, e, kNever);
  const int64_t when = TimeFromNow(Nanoseconds(*limit));
  const int got = SelectUntil(n, r, w, e, when);
  // Linux leaves the time that is left.
  const int64_t left = std::max<int64_t>(when - TimeFromNow(0), 0);
  *limit = {left / 1'000'000'000, left % 1'000'000'000 / 1000};
  return got;
}

int PSelect(int n, fd_set* r, fd_set* w, fd_set* e, const timespec* limit,
            const sigset_t* mask) {
  const Way way = WayHere();
  const auto call = [=] { return Libc().pselect(n, r, w, e, limit, mask); };
  if (way == Way::kDirect) return call();
  const bool bad =
      n < 0 || n > FD_SETSIZE ||
      (limit != nullptr && (limit->tv_sec < 0 || limit->tv_nsec < 0 ||
                            limit->tv_nsec >= 1'000'000'000));
  if (way == Way::kStay || mask != nullptr || bad || !Clean()) {
    return Stay(call);
  }
  return SelectUntil(
      n, r, w, e, limit == nullptr ? kNever : TimeFromNow(Nanoseconds(*limit)));
}

}  // namespace

void AddPollCalls(Table* t) {
  t->poll = Poll;
  t->ppoll = PPoll;
  t->select = Select;
  t->pselect = PSelect;
}

}  // namespace gump::hooks
