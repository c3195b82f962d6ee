// The names of threads and of mappings, as the tools of the system show them.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "gump/go.h"
#include "gump/os.h"
#include "gump/runtime.h"
#include "gump/runtime/thread.h"
#include "gump/sync/waitgroup.h"
#include "tests/testing/sleep_on_threads.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using NamesTest = testing::WithGomaxprocs;
GUMP_INSTANTIATE_GOMAXPROCS(NamesTest);

std::string Line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string NameOf(pid_t tid) {
  return Line("/proc/self/task/" + std::to_string(tid) + "/comm");
}

std::multiset<std::string> NamesOfThreads() {
  std::multiset<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator("/proc/self/task")) {
    names.insert(Line(e.path() / "comm"));
  }
  return names;
}

TEST_P(NamesTest, RuntimeNamesItsThreads) {
  const std::string program = NameOf(getpid());
  Run([&] {
    testing::SleepOnThreads(4);
    // Until a new thread names itself, it has the name of its maker.
    std::multiset<std::string> names;
    EXPECT_TRUE(testing::Eventually([&] {
      names = NamesOfThreads();
      return names.count("gump-sysmon") == 1 &&
             names.count("gump-template") == 1;
    }));
    EXPECT_LE(names.count("gump-ring"), 1u);
    EXPECT_EQ(NameOf(getpid()), program) << "the thread of Run was renamed";
    int numbered = 0;
    for (const std::string& name : names) {
      numbered += name.starts_with("gump-m") ? 1 : 0;
    }
    EXPECT_GE(numbered, 3);
  });
  EXPECT_EQ(NameOf(getpid()), program);
}

TEST_P(NamesTest, NewThreadOfAnMIsNamedByItsNewNumber) {
  Run([] {
    std::set<std::string> names;
    for (int i = 0; i < 20; i++) {
      sync::WaitGroup wg;
      wg.Go([&] {
        runtime::LockOSThread();  // the thread ends with the goroutine
        names.insert(NameOf(gettid()));
      });
      wg.Wait();
    }
    EXPECT_EQ(names.size(), 20u);
    for (const std::string& name : names) {
      EXPECT_TRUE(name.starts_with("gump-m")) << name;
    }
  });
}

// ForkHere checks that a child of this thread has the name of the program.
void ForkHere(const std::string& program) {
  const std::string own = NameOf(gettid());
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    char name[16] = {};
    prctl(PR_GET_NAME, name);
    _exit(write(fds[1], name, sizeof(name)) == sizeof(name) ? 0 : 1);
  }
  char name[16] = {};
  EXPECT_EQ(read(fds[0], name, sizeof(name)), ssize_t{sizeof(name)});
  EXPECT_EQ(name, program);
  EXPECT_EQ(NameOf(gettid()), own) << "the parent's thread was renamed";
  close(fds[0]);
  close(fds[1]);
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

TEST_P(NamesTest, ChildOfForkHasTheNameOfTheProgram) {
  const std::string program = NameOf(getpid());
  Run([&] {
    sync::WaitGroup wg;
    wg.Go([&] {
      runtime::LockOSThread();
      ForkHere(program);
      runtime::UnlockOSThread();
    });
    wg.Wait();
    for (const char* name : {"", "own name"}) {
      runtime::Thread t(name);
      t.Run([&] { ForkHere(program); });
    }
  });
}

// KernelNamesMappings asks the kernel to name a mapping of this test.
bool KernelNamesMappings() {
  constexpr int kPrSetVma = 0x53564d41;
  constexpr size_t kSize = 4096;
  void* p = mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool named = prctl(kPrSetVma, 0, p, kSize, "probe") == 0;
  munmap(p, kSize);
  return named;
}

TEST_P(NamesTest, RuntimeNamesItsMappings) {
  Run([] {
    sync::WaitGroup wg;
    for (int i = 0; i < 1000; i++) wg.Go([] { runtime::Gosched(); });
    wg.Wait();
    std::ifstream in("/proc/self/maps");
    const std::string maps{std::istreambuf_iterator<char>(in), {}};
    for (const char* name :
         {"[anon:gump: stacks]", "[anon:gump: gs]", "[anon:gump: runtime]",
          "[anon:gump: signal stacks]"}) {
      EXPECT_EQ(maps.find(name) != std::string::npos, KernelNamesMappings())
          << name;
    }
  });
}

}  // namespace
}  // namespace gump
