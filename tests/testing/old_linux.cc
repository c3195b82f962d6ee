// Runs a program on a kernel that seems to be older than it is: a feature that
// the older one would not know fails as it would there.
//
//   old_linux 4.9|5.4|5.15 PROGRAM [ARGUMENT...]
//
//   4.9    no membarrier, as in sandboxes that deny it; all else is there
//   5.4    no epoll_pwait2, no close_range, nothing that came later; io_uring
//          exists, and has none of the flags that we ask for
//   5.15   io_uring that makes completions at any time: no flags of 6.1
//
// The last two have no RWF_NOSIGNAL and no MADV_GUARD_INSTALL. A filter cannot
// see flags that are in a structure in memory. So for 5.15 this process stays,
// and is asked about each io_uring_setup.
//
// It exits with 77 where filters are denied, and otherwise as the program does.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int kSkipped = 77;

struct Version {
  uint32_t first_unknown;  // system call
  uint32_t setup;          // the answer to io_uring_setup
};

// In both architectures these have the same numbers from 424 on.
constexpr uint32_t kCloseRange = 436;  // 5.9
constexpr uint32_t kFutexWaitv = 449;  // 5.16
constexpr uint32_t kIoUringSetup = 425;
constexpr uint32_t kKnownWriteFlags = 0x1f;  // of pwritev2, before RWF_NOAPPEND
constexpr uint32_t kMadvGuardInstall = 102;  // 6.13
constexpr uint32_t kKnownSetupFlags = 0x7f;  // up to IORING_SETUP_R_DISABLED
constexpr size_t kSetupFlagsAt = 8;          // in struct io_uring_params

std::vector<sock_filter> FilterOf(const Version& v) {
  const auto fail = [](uint32_t err) { return SECCOMP_RET_ERRNO | err; };
  const auto argument = [](unsigned i) {
    return static_cast<uint32_t>(offsetof(seccomp_data, args[0]) + i * 8);
  };
  return {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kIoUringSetup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, v.setup),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, v.first_unknown, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, fail(ENOSYS)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwritev2, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(5)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, ~kKnownWriteFlags, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, fail(EOPNOTSUPP)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(2)),
      BPF_JUMP(BPF_JMP | BPF_JA, 2, 0, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_madvise, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(3)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMadvGuardInstall, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, fail(EINVAL)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
}

std::vector<sock_filter> NoMembarrier() {
  return {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
}

// Install returns the result of seccomp.
int Install(std::vector<sock_filter> filter, unsigned flags) {
  const sock_fprog prog = {static_cast<unsigned short>(filter.size()),
                           filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return static_cast<int>(
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog));
}

[[noreturn]] void Skip(const char* what) {
  std::fprintf(stderr, "skipped: %s: errno %d\n", what, errno);
  std::exit(kSkipped);
}

[[noreturn]] void Exec(char** argv) {
  execvp(argv[0], argv);
  std::perror(argv[0]);
  std::exit(127);
}

// SetupFlags returns the flags that a process passes to io_uring_setup.
uint32_t SetupFlags(const seccomp_notif& asked) {
  const std::string path = "/proc/" + std::to_string(asked.pid) + "/mem";
  uint32_t flags = 0;
  if (FILE* mem = std::fopen(path.c_str(), "re"); mem != nullptr) {
    const auto at = static_cast<off_t>(asked.data.args[1] + kSetupFlagsAt);
    if (fseeko(mem, at, SEEK_SET) != 0 ||
        std::fread(&flags, sizeof(flags), 1, mem) != 1) {
      flags = 0;
    }
    std::fclose(mem);
  }
  return flags;
}

// Answer decides about each io_uring_setup, until the process has ended.
void Answer(int listener, int pidfd) {
  for (;;) {
    pollfd p[] = {{listener, POLLIN, 0}, {pidfd, POLLIN, 0}};
    if (poll(p, 2, -1) < 0 && errno != EINTR) return;
    if (p[1].revents != 0) return;
    if ((p[0].revents & POLLIN) == 0) continue;
    seccomp_notif asked = {};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) continue;
    seccomp_notif_resp answer = {};
    answer.id = asked.id;
    if ((SetupFlags(asked) & ~kKnownSetupFlags) != 0) {
      answer.error = -EINVAL;
    } else {
      answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    }
    (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
}

// RunAsked runs the program in a child, and answers its questions.
int RunAsked(const Version& v, char** argv) {
  int says[2];
  int goes[2];
  if (pipe(says) != 0 || pipe(goes) != 0) Skip("pipe");
  const pid_t child = fork();
  if (child < 0) Skip("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int listener = Install(FilterOf(v), SECCOMP_FILTER_FLAG_NEW_LISTENER);
    char ok;
    if (listener < 0) Skip("seccomp");
    if (write(says[1], &listener, sizeof(listener)) < 0) std::exit(1);
    for (const int fd : {says[0], says[1], goes[1]}) close(fd);
    if (read(goes[0], &ok, 1) != 1) std::exit(1);
    close(goes[0]);
    Exec(argv);
  }
  close(says[1]);
  close(goes[0]);
  int number;
  int status;
  if (read(says[0], &number, sizeof(number)) == sizeof(number)) {
    const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
    const int listener =
        static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, number, 0));
    if (listener < 0) Skip("pidfd_getfd");
    if (write(goes[1], "x", 1) != 1) return 1;
    Answer(listener, pidfd);
  }
  if (waitpid(child, &status, 0) < 0) return 1;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return 128 + WTERMSIG(status);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view version = argc > 2 ? argv[1] : "";
  if (version == "4.9") {
    if (Install(NoMembarrier(), 0) != 0) Skip("seccomp");
    Exec(argv + 2);
  }
  if (version == "5.4") {
    const Version v = {kCloseRange, SECCOMP_RET_ERRNO | EINVAL};
    if (Install(FilterOf(v), 0) != 0) Skip("seccomp");
    Exec(argv + 2);
  }
  if (version == "5.15") {
    return RunAsked({kFutexWaitv, SECCOMP_RET_USER_NOTIF}, argv + 2);
  }
  std::fprintf(stderr, "usage: old_linux 4.9|5.4|5.15 PROGRAM [ARGUMENT...]\n");
  return 2;
}
