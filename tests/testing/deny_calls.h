// System calls that fail, by a filter of seccomp, until the process ends.
#ifndef TESTS_TESTING_DENY_CALLS_H_
#define TESTS_TESTING_DENY_CALLS_H_

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gump::testing {

// DenyCalls is a filter in the making. Each of its functions adds calls that
// fail from then on.
class DenyCalls {
 public:
  enum class If : uint8_t { kEqual, kNotEqual, kNegative };

  // When makes the call nr fail with err if the low half of its first argument
  // is as told.
  DenyCalls& When(uint32_t nr, If relation, int32_t value, uint16_t err) {
    const auto v = static_cast<uint32_t>(value);
    const sock_filter deny =
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | uint32_t{err});
    filter_.push_back(
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 3));
    filter_.push_back(
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])));
    switch (relation) {
      case If::kEqual:
        filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, v, 0, 1));
        break;
      case If::kNotEqual:
        filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, v, 1, 0));
        break;
      case If::kNegative:
        filter_.push_back(
            BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x80000000u, 0, 1));
        break;
    }
    filter_.push_back(deny);
    return *this;
  }

  // ForAllThreads makes the calls fail in each thread of the process. Returns
  // false if the kernel refuses.
  [[nodiscard]] bool ForAllThreads() {
    if (filter_.empty()) return true;
    filter_.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog prog = {static_cast<unsigned short>(filter_.size()),
                             filter_.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                   SECCOMP_FILTER_FLAG_TSYNC, &prog) == 0;
  }

  // Possible returns true if processes may have filters here.
  static bool Possible() { return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0; }

 private:
  std::vector<sock_filter> filter_;
};

}  // namespace gump::testing

#endif  // TESTS_TESTING_DENY_CALLS_H_
