#include "runtime/diag/framewalk.h"

#include <sys/syscall.h>
#include <sys/uio.h>

#include <cstring>

#include "runtime/sys/base.h"
#include "runtime/sys/raw_syscall.h"

namespace gump::rt {

namespace {

// No code is below this address.
constexpr uintptr_t kLowestCode = 4096;

// Frame is what a frame pointer points at, on both architectures.
struct Frame {
  uintptr_t caller;  // the frame pointer of the caller
  uintptr_t ret;     // the return address
};

// StackReader reads frames of one stack. If `hi`, its end, is 0, the kernel
// reads the stack.
class StackReader {
 public:
  explicit StackReader(uintptr_t hi) : hi_(hi) {}

  // read returns false if the frame is not in the stack.
  GUMP_NO_SANITIZE bool read(uintptr_t at, Frame* frame) {
    if (hi_ != 0) {
      if (at >= hi_ || hi_ - at < sizeof(*frame)) return false;
      *frame = *reinterpret_cast<const Frame*>(at);
      return true;
    }
    if (at < at_ || at - at_ + sizeof(*frame) > size_) {
      // The window ends with the page, because the next one may be unmapped.
      size_t n = kPageSize - at % kPageSize;
      if (n < sizeof(*frame)) n = sizeof(*frame);
      if (n > sizeof(window_)) n = sizeof(window_);
      size_ = 0;
      if (!readMemory(window_, at, n)) return false;
      at_ = at;
      size_ = n;
    }
    std::memcpy(frame, window_ + (at - at_), sizeof(*frame));
    return true;
  }

 private:
  const uintptr_t hi_;
  // A copy of size_ bytes from at_ on. It is small, because the stack of a
  // handler may be small.
  uintptr_t at_ = 0;
  size_t size_ = 0;
  char window_[256];
};

}  // namespace

bool readMemory(void* to, uintptr_t from, size_t n) {
  const iovec local{to, n};
  const iovec remote{reinterpret_cast<void*>(from), n};
  const long pid = rawSyscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
  return rawSyscall(SYS_process_vm_readv, pid, asArg(&local), 1, asArg(&remote),
                    1, 0) == static_cast<long>(n);
}

GUMP_NO_SANITIZE uint32_t walkFrames(const Registers& r, uintptr_t hi,
                                     uintptr_t* pcs, uint32_t most) {
  uint32_t n = 0;
  if (most == 0) return 0;
  pcs[n++] = r.pc;
  if (const uintptr_t ret = callerOfFrameless(r); ret > kLowestCode) {
    if (n < most) pcs[n++] = ret - 1;
  }
  StackReader stack(hi);
  // Each frame lies above the one before, so the walk ends.
  uintptr_t lowest = r.sp;
  uintptr_t fp = r.fp;
  while (n < most && fp >= lowest && fp % sizeof(fp) == 0) {
    Frame frame;
    if (!stack.read(fp, &frame)) break;
    const uintptr_t ret = stripReturn(frame.ret);
    if (ret <= kLowestCode) break;
    pcs[n++] = ret - 1;
    lowest = fp + sizeof(frame);
    fp = frame.caller;
  }
  return n;
}

}  // namespace gump::rt
