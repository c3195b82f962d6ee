// The library's descriptors and the closed standard ones
// (runtime/sys/descriptor.cc).
//
// The kernel's table is one word, with four bits for each descriptor. open,
// fcntl and close come here by the linker's --wrap. Each of them is one step,
// as in the kernel.
#include <fcntl.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>

#include "runtime/sys/atomic.h"
#include "runtime/sys/descriptor.h"
#include "tests/model/model.h"

namespace gump::model {
namespace {

constexpr int kSlots = 10;

enum What : uint64_t { kFree, kPlaceholder, kOurs, kTheirs };

bool ofModel;  // the table is used
rt::Atomic<uint64_t> table;

uint64_t at(uint64_t t, int fd) { return t >> (4 * fd) & 15; }

// change replaces the state of one descriptor, if it is `from`.
bool change(int fd, uint64_t from, uint64_t to) {
  uint64_t t = table.load(rt::seq_cst);
  for (;;) {
    if (at(t, fd) != from) return false;
    if (table.cas(t, t + (to << (4 * fd)) - (from << (4 * fd)), rt::seq_cst)) {
      return true;
    }
    t = table.load(rt::seq_cst);
  }
}

// make stores `what` at the lowest free number from `least` on.
int make(What what, int least = 0) {
  for (;;) {
    const uint64_t t = table.load(rt::seq_cst);
    int fd = least;
    while (fd < kSlots && at(t, fd) != kFree) fd++;
    if (fd == kSlots) {
      errno = EMFILE;
      return -1;
    }
    if (table.cas(t, t + (uint64_t{what} << (4 * fd)), rt::seq_cst)) return fd;
  }
}

void closeFd(int fd) {
  const uint64_t was = at(table.load(rt::seq_cst), fd);
  check(was != kFree && change(fd, was, kFree), "closed twice");
}

// A thread of ours makes a descriptor and uses it for a while.
void maker() {
  const int fd = rt::newDescriptor([] { return make(kOurs); });
  check(fd >= rt::kFirstDescriptor, "a descriptor of ours is below 3");
  check(at(table.load(rt::seq_cst), fd) == kOurs, "it means something else");
  closeFd(fd);
}

// A thread of the program reads the closed ones.
void reader() {
  for (int i = 0; i < 2; i++) {
    const uint64_t t = table.load(rt::seq_cst);
    check(at(t, 0) != kOurs && at(t, 1) != kOurs, "reads a descriptor of ours");
  }
}

void atRest() {
  const uint64_t t = table.load(rt::seq_cst);
  for (int fd = 0; fd < kSlots; fd++) {
    check(at(t, fd) == (fd == 2 ? kTheirs : kFree), "a descriptor is left");
  }
}

// A thread of the program gives the closed standard descriptors to a child.
void lender() {
  for (int fd = 0; fd < 2; fd++) {
    check(rt::dupOfProgram(fd) == -EBADF, "a placeholder is lent");
  }
}

// A thread of the program asks what the closed standard descriptors are. Until
// the runtime has noticed that they are closed, one may be ours for a moment.
void asker() {
  for (int fd = 0; fd < 2; fd++) {
    const long what = rt::onProgram(fd, [fd]() -> long {
      const uint64_t is = at(table.load(rt::seq_cst), fd);
      return is == kFree ? -EBADF : static_cast<long>(is);
    });
    check(what == -EBADF || what == kOurs, "a placeholder is described");
  }
}

// Descriptors 0 and 1 are closed.
void closed() {
  ofModel = true;
  table.store(uint64_t{kTheirs} << 8, rt::relaxed);
  nameWord(&table, "table");
}

const Registered kHold({
    .name = "descriptor_hold",
    .about = "Descriptors: two are made while a program reads the closed ones",
    .setup =
        [] {
          closed();
          rt::standardFree.store(true, rt::relaxed);
          thread("a", maker);
          thread("b", maker);
          thread("reader", reader);
        },
    .finish = atRest,
    .quick = {2, 1, 200},
    .full = {3, 1, 20000},
});

const Registered kLend({
    .name = "descriptor_lend",
    .about = "Descriptors: one is made while the closed ones are lent",
    .setup =
        [] {
          closed();
          rt::standardFree.store(true, rt::relaxed);
          thread("a", maker);
          thread("lender", lender);
        },
    .finish = atRest,
    .quick = {2, 1, 200},
    .full = {3, 1, 20000},
});

const Registered kAsk({
    .name = "descriptor_ask",
    .about = "Descriptors: one is made while the closed ones are described",
    .setup =
        [] {
          closed();
          rt::standardFree.store(true, rt::relaxed);
          thread("a", maker);
          thread("asker", asker);
        },
    .finish = atRest,
    .quick = {2, 1, 200},
    .full = {3, 1, 20000},
});

const Registered kAskFirst({
    .name = "descriptor_ask_first",
    .about = "Descriptors: two are made while closed ones that have not been "
             "noticed are described",
    .setup =
        [] {
          closed();
          thread("a", [] {
            maker();
            maker();
          });
          thread("asker", asker);
        },
    .finish = atRest,
    .quick = {2, 1, 200},
    .full = {3, 1, 20000},
});

const Registered kMove({
    .name = "descriptor_move",
    .about = "Descriptors: two are made before closed ones have been noticed",
    .setup =
        [] {
          closed();
          thread("a", maker);
          thread("b", maker);
        },
    .finish = atRest,
    .quick = {2, 1, 200},
    .full = {3, 1, 20000},
});

}  // namespace
}  // namespace gump::model

// ---- The kernel -------------------------------------------------------------

namespace gump::model {
namespace {

int wrapFcntl(int fd, int call, int least) {
  switch (call) {
    case F_DUPFD_CLOEXEC: {
      const auto what = static_cast<What>(at(table.load(rt::seq_cst), fd));
      if (what != kFree) return make(what, least);
      errno = EBADF;
      return -1;
    }
    case F_GETFL:
      switch (at(table.load(rt::seq_cst), fd)) {
        case kFree:
          errno = EBADF;
          return -1;
        case kPlaceholder:
          return O_PATH;
        default:
          return O_RDWR;
      }
    default:
      fail("model: an unknown fcntl");
  }
}

}  // namespace
}  // namespace gump::model

extern "C" {
int __real_open(const char* path, int flags, ...);
int __real_fcntl(int fd, int call, ...);
int __real_close(int fd);

int __wrap_open(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(args, int) : 0;
  va_end(args);
  if (!gump::model::ofModel) return __real_open(path, flags, mode);
  return gump::model::make(gump::model::kPlaceholder);
}

int __wrap_fcntl(int fd, int call, ...) {
  va_list args;
  va_start(args, call);
  const long arg = va_arg(args, long);
  va_end(args);
  if (!gump::model::ofModel) return __real_fcntl(fd, call, arg);
  return gump::model::wrapFcntl(fd, call, static_cast<int>(arg));
}

int __wrap_close(int fd) {
  if (!gump::model::ofModel) return __real_close(fd);
  gump::model::closeFd(fd);
  return 0;
}
}
