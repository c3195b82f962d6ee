// Walks by frame pointers end at the end of the stack, whatever they find on
// the way.
#include "runtime/diag/framewalk.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/sys/base.h"
#include "runtime/sys/sanitizer.h"

namespace gump {
namespace {

using rt::Registers;
using rt::walkFrames;

uintptr_t Address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

// FakeStack is a stack of zeros, with a page behind it that cannot be read.
class FakeStack {
 public:
  FakeStack() {
    words_ = static_cast<uintptr_t*>(mmap(nullptr, 2 * rt::kPageSize,
                                          PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(words_, MAP_FAILED);
    EXPECT_EQ(mprotect(words_ + kWords, rt::kPageSize, PROT_NONE), 0);
  }
  ~FakeStack() { munmap(words_, 2 * rt::kPageSize); }
  FakeStack(const FakeStack&) = delete;
  FakeStack& operator=(const FakeStack&) = delete;

  static constexpr size_t kWords = rt::kPageSize / sizeof(uintptr_t);
  uintptr_t& operator[](size_t i) { return words_[i]; }
  uintptr_t at(size_t i) const { return Address(words_ + i); }
  uintptr_t end() const { return at(kWords); }
  // Frame makes word i the frame of a function, whose caller has its frame at
  // word `caller`.
  void Frame(size_t i, size_t caller, uintptr_t ret) {
    words_[i] = at(caller);
    words_[i + 1] = ret;
  }

 private:
  uintptr_t* words_;
};

// Walk walks a stack that is known and one that is not. The results are equal.
std::vector<uintptr_t> Walk(const FakeStack& s, uintptr_t fp,
                            uint32_t most = 64) {
  // No code is at pc, so nothing is found there.
  const Registers r{8000, s.at(0), fp, 0};
  std::vector<uintptr_t> known(most), unknown(most);
  known.resize(walkFrames(r, s.end(), known.data(), most));
  unknown.resize(walkFrames(r, 0, unknown.data(), most));
  EXPECT_EQ(known, unknown);
  return known;
}

using Pcs = std::vector<uintptr_t>;

TEST(FramewalkTest, CallersFollowTheInterruptedFunction) {
  FakeStack s;
  s.Frame(10, 20, 9001);
  s.Frame(20, 200, 9002);
  s.Frame(200, 0, 9003);  // an end: the next frame is not above
  EXPECT_EQ(Walk(s, s.at(10)), (Pcs{8000, 9000, 9001, 9002}));
  EXPECT_EQ(Walk(s, s.at(10), 3), (Pcs{8000, 9000, 9001}));
  EXPECT_EQ(Walk(s, s.at(10), 1), (Pcs{8000}));
}

TEST(FramewalkTest, OutermostFrameEndsTheWalk) {
  FakeStack s;
  s.Frame(10, 20, 9001);
  s[20] = 0;
  s[21] = 9002;
  EXPECT_EQ(Walk(s, s.at(10)), (Pcs{8000, 9000, 9001}));
  s[21] = 0;  // no return address
  EXPECT_EQ(Walk(s, s.at(10)), (Pcs{8000, 9000}));
}

TEST(FramewalkTest, BadFramePointerEndsTheWalk) {
  FakeStack s;
  for (const uintptr_t fp :
       {uintptr_t{0}, uintptr_t{1}, uintptr_t{7}, s.at(0) - 8, s.at(0) - 4096,
        s.at(3) + 1, s.at(3) + 4, s.end() - 8, s.end(), s.end() + 8,
        UINTPTR_MAX, UINTPTR_MAX - 7, UINTPTR_MAX - 15, uintptr_t{1} << 63,
        Address(&s) | 1}) {
    EXPECT_EQ(Walk(s, fp), (Pcs{8000})) << std::hex << fp;
    s.Frame(10, 10, 9001);
    s[10] = fp;
    EXPECT_EQ(Walk(s, s.at(10)), (Pcs{8000, 9000})) << std::hex << fp;
  }
}

TEST(FramewalkTest, LoopOfFramesEndsTheWalk) {
  FakeStack s;
  s.Frame(10, 20, 9001);
  s.Frame(20, 10, 9002);
  EXPECT_EQ(Walk(s, s.at(10)), (Pcs{8000, 9000, 9001}));
  s.Frame(20, 20, 9002);
  EXPECT_EQ(Walk(s, s.at(10)), (Pcs{8000, 9000, 9001}));
}

TEST(FramewalkTest, LastFrameOfTheStackIsRead) {
  FakeStack s;
  s.Frame(10, FakeStack::kWords - 2, 9001);
  s[FakeStack::kWords - 2] = s.end();
  s[FakeStack::kWords - 1] = 9002;
  EXPECT_EQ(Walk(s, s.at(10)), (Pcs{8000, 9000, 9001}));
}

// The kernel reads an unknown stack in pieces, which end with the page.
TEST(FramewalkTest, FrameAcrossTheEndOfAPageIsRead) {
  constexpr size_t kPages = 3;
  void* const pages =
      mmap(nullptr, kPages * rt::kPageSize, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  auto* const words = static_cast<uintptr_t*>(pages);
  const auto at = [&](size_t i) { return Address(words + i); };
  constexpr size_t kWords = rt::kPageSize / sizeof(uintptr_t);
  // Frames in the words before, across and behind the first end of a page.
  size_t at_word = kWords - 5;
  std::vector<uintptr_t> want = {8000};
  for (const size_t next : {kWords - 3, kWords - 1, kWords + 1, kWords + 40,
                            2 * kWords - 1, 2 * kWords + 1, size_t{0}}) {
    words[at_word] = next == 0 ? 0 : at(next);
    words[at_word + 1] = 9001 + at_word;
    want.push_back(9000 + at_word);
    at_word = next;
  }
  Pcs pcs(64);
  const Registers r{8000, at(0), at(kWords - 5), 0};
  pcs.resize(walkFrames(r, 0, pcs.data(), 64));
  EXPECT_EQ(pcs, want);
  munmap(pages, kPages * rt::kPageSize);
}

TEST(FramewalkTest, FramesLieAboveTheStackPointer) {
  FakeStack s;
  s.Frame(10, 20, 9001);
  Pcs pcs(8);
  const Registers r{8000, s.at(11), s.at(10), 0};
  EXPECT_EQ(walkFrames(r, s.end(), pcs.data(), 8), 1u);
  EXPECT_EQ(walkFrames(r, 0, pcs.data(), 8), 1u);
}

TEST(FramewalkTest, StackThatIsNotMappedEndsTheWalk) {
  FakeStack s;
  Pcs pcs(8);
  const Registers r{8000, s.end(), s.end() + 64, 0};
  EXPECT_EQ(walkFrames(r, 0, pcs.data(), 8), 1u);
}

TEST(FramewalkTest, UnmappedMemory_ReadMemoryReturnsFalse) {
  FakeStack s;
  s[5] = 77;
  uintptr_t word = 0;
  EXPECT_TRUE(rt::readMemory(&word, s.at(5), sizeof(word)));
  EXPECT_EQ(word, 77u);
  EXPECT_FALSE(rt::readMemory(&word, s.end(), sizeof(word)));
  EXPECT_FALSE(rt::readMemory(&word, s.end() - 4, sizeof(word)));
  EXPECT_FALSE(rt::readMemory(&word, 0, sizeof(word)));
}

// ---- Every instruction ------------------------------------------------------

// As in unwind_test.cc, the trap flag stops the thread after each instruction.
#if defined(__x86_64__)

struct Range {
  uintptr_t begin, end;
  bool Has(uintptr_t pc) const { return begin <= pc && pc < end; }
};

char from[100], to[100];

// Stepped sets the trap flag, calls functions with and without a frame, and
// clears the flag.
__attribute__((noinline)) size_t Stepped(const char* text) {
  asm volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
  std::memcpy(to, from, sizeof(to));
  const size_t n = strlen(text);
  char* const rest = strchr(to, 'x');
  asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
  return n + (rest != nullptr);
}

Range stepped;
uintptr_t stackEnd;
int inCallees, withoutCaller;

void OnTrap(int, siginfo_t*, void* context) {
  const Registers r = rt::registersOf(context);
  if (stepped.Has(r.pc)) return;
  uintptr_t pcs[64];
  const uint32_t n = walkFrames(r, stackEnd, pcs, 64);
  bool found = false;
  for (uint32_t i = 1; i < n; i++) found = found || stepped.Has(pcs[i]);
  inCallees++;
  if (!found) withoutCaller++;
}

// Functions of libc have no frame pointers. The functions that this test calls
// do not use that register for anything else.
TEST(FramewalkTest, CallerOfAFunctionWithoutAFrameIsFound) {
  if (rt::kSanitizerBuild) GTEST_SKIP() << "sanitizers intercept the calls";
  stepped.begin = Address(reinterpret_cast<const void*>(&Stepped));
  stepped.end = stepped.begin + 400;
  stackEnd = Address(__builtin_frame_address(0)) + 16;
  std::memset(from, 'a', sizeof(from));
  struct sigaction action = {};
  struct sigaction old = {};
  action.sa_sigaction = OnTrap;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, &old);
  (void)Stepped("warm up");  // the loader binds the functions
  inCallees = withoutCaller = 0;
  (void)Stepped("steps");
  sigaction(SIGTRAP, &old, nullptr);
  EXPECT_GT(inCallees, 20);
  EXPECT_EQ(withoutCaller, 0) << "of " << inCallees;
}

#endif  // __x86_64__

}  // namespace
}  // namespace gump
