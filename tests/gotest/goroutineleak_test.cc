// TestGoroutineLeakProfile of runtime/goroutineleakprofile_test.go, and the
// rate at which the profile finds the goroutines of a corpus of leaks.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gump/context.h"
#include "gump/go.h"
#include "gump/pprof.h"
#include "gump/runtime.h"
#include "runtime/sys/sanitizer.h"
#include "tests/gotest/leak_programs.h"
#include "tests/testing/profile_reader.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump {
namespace {

using gotest::LeakProgram;
using testing::Eventually;
using testing::Profile;

// Rates that the test requires, in percent. They are below the usual ones,
// because a stale word in memory may hide a leak, and all nodes to which that
// one refers. Usual: 57 to 59 of 59 programs.
constexpr int64_t kPrograms = 80;
constexpr int64_t kGoroutines = 80;

// CountOf counts the goroutines of a program, all of them or those that are
// reported as `leak`.
int64_t CountOf(const Profile& p, const LeakProgram& program,
                const char* leak = nullptr) {
  std::map<std::string, std::string> labels{{"program", program.name}};
  if (leak != nullptr) labels["leak"] = leak;
  return p.Sum("", 0, labels);
}

Profile Read(const char* name) {
  const testing::TempFile file;
  const absl::Status written = pprof::WriteProfile(name, file.fd());
  EXPECT_TRUE(written.ok()) << written;
  return testing::ReadProfile(file.Read());
}

// Start runs the programs and waits until only the goroutines that they leak
// are left, and all of them wait.
[[nodiscard]] bool Start(const std::vector<LeakProgram>& all) {
  for (const LeakProgram& program : all) {
    pprof::Do(context::Background(), {{"program", program.name}},
              [&](const context::Context&) { go(program.run); });
  }
  return Eventually([&] {
    const Profile p = Read("goroutine");
    for (const LeakProgram& program : all) {
      if (CountOf(p, program) != program.leaks) return false;
    }
    const std::string dump = runtime::Stack(true);
    return dump.find("[runnable") == std::string::npos &&
           dump.rfind("[running") == dump.find("[running");
  });
}

// One run in a process: the goroutines stay, and would count in the next run.
TEST(GoroutineLeakTest, TestGoroutineLeakProfile) {
  if (rt::sanitizerKeepsAddresses()) {
    GTEST_SKIP() << "no profile goroutineleak with ThreadSanitizer";
  }
  constexpr int kProcs = 4;
  testing::RunWith(kProcs, [] {
    std::vector<LeakProgram> all;
    for (const auto& programs :
         {gotest::SmallLeaks(), gotest::ProjectLeaks()}) {
      all.insert(all.end(), programs.begin(), programs.end());
    }
    ASSERT_TRUE(Start(all)) << runtime::Stack(true);
    // A thread may still be on its way to sleep.
    Profile p;
    EXPECT_TRUE(Eventually([&p] {
      p = Read("goroutineleak");
      return p.Sum("", 0, {{"leak", "suspected"}}) > 3;
    }));
    EXPECT_EQ(p.error, "");
    EXPECT_EQ(p.types, std::vector<std::string>{"goroutineleak count"});
    EXPECT_EQ(p.period_type, "goroutineleak count");
    int64_t goroutines = 0, certain = 0, found = 0, whole = 0;
    std::string missed;
    for (const LeakProgram& program : all) {
      const int64_t sure = CountOf(p, program, "certain");
      const int64_t here = sure + CountOf(p, program, "suspected");
      EXPECT_EQ(here, CountOf(p, program)) << program.name;
      EXPECT_LE(here, program.leaks) << program.name;
      goroutines += program.leaks;
      certain += sure;
      found += here;
      if (here == program.leaks) {
        whole++;
      } else {
        missed.append(" ").append(program.name);
      }
    }
    const auto programs = static_cast<int64_t>(all.size());
    std::printf(
        "%d of %d programs; %d of %d goroutines, %d certain; missed:%s\n",
        static_cast<int>(whole), static_cast<int>(programs),
        static_cast<int>(found), static_cast<int>(goroutines),
        static_cast<int>(certain), missed.c_str());
    EXPECT_GE(100 * whole, kPrograms * programs) << missed;
    EXPECT_GE(100 * found, kGoroutines * goroutines) << missed;
    EXPECT_EQ(certain, 3);  // those that wait for nothing
  });
}

}  // namespace
}  // namespace gump
