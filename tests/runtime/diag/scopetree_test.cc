#include "runtime/diag/scopetree.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gump/internal/linkname.h"
#include "runtime/diag/debugvars.h"
#include "runtime/diag/traceback.h"
#include "runtime/sched/runtime2.h"

namespace gump::rt {
namespace {

class ScopeTreeTest : public ::testing::Test {
 protected:
  ScopeTreeTest() { debug.scopes = 1; }
  ~ScopeTreeTest() override { debug.scopes = 0; }

  // add adds a goroutine that waits in scope s, which is inside of `outer`.
  static void Add(ScopeTree* tree, uint64_t goid, const ScopeRecord* s) {
    GRecord r;
    r.goid = goid;
    r.status = kGwaiting;
    r.reason = WaitReason::kSelect;
    r.scope = s;
    if (s != nullptr) {
      r.scopeOuter = s->outer;
      r.scopeOwner = s->owner_goid;
      strncpy(r.scopeName, s->name, sizeof(r.scopeName) - 1);
    }
    tree->add(r);
  }
  static std::string Text(ScopeTree* tree) {
    std::vector<char> buf(1 << 20);
    Writer w{.buf = buf.data(), .cap = buf.size()};
    tree->finish(&w);
    return std::string(buf.data(), w.len);
  }
};

ScopeRecord Record(const char* name, uint64_t owner,
                   const ScopeRecord* outer = nullptr) {
  ScopeRecord s;
  s.name = name;
  s.owner_goid = owner;
  s.outer = outer;
  return s;
}

TEST_F(ScopeTreeTest, ScopeStandsBelowTheGoroutineThatOwnsIt) {
  const ScopeRecord outer = Record("outer", 1);
  const ScopeRecord inner = Record("inner", 7, &outer);
  ScopeTree tree;
  tree.start();
  Add(&tree, 9, &inner);
  Add(&tree, 8, &outer);
  Add(&tree, 7, &outer);
  EXPECT_EQ(Text(&tree),
            "\nscopes:\n"
            "  scope \"outer\" of goroutine 1\n"
            "    goroutine 7 [select]\n"
            "      scope \"inner\" of goroutine 7\n"
            "        goroutine 9 [select]\n"
            "    goroutine 8 [select]\n");
}

TEST_F(ScopeTreeTest, ScopeOfTheSameOwnerStandsBelowTheOuterScope) {
  const ScopeRecord outer = Record("", 1);
  const ScopeRecord inner = Record("inner", 1, &outer);
  ScopeTree tree;
  tree.start();
  Add(&tree, 9, &inner);
  Add(&tree, 8, &outer);
  EXPECT_EQ(Text(&tree),
            "\nscopes:\n"
            "  scope of goroutine 1\n"
            "    goroutine 8 [select]\n"
            "    scope \"inner\" of goroutine 1\n"
            "      goroutine 9 [select]\n");
}

TEST_F(ScopeTreeTest, ScopeInsideOfOneWithoutGoroutinesIsARoot) {
  const ScopeRecord empty = Record("empty", 1);
  const ScopeRecord first = Record("first", 2, &empty);
  const ScopeRecord second = Record("second", 1, &empty);
  ScopeTree tree;
  tree.start();
  Add(&tree, 9, &first);
  Add(&tree, 8, &second);
  EXPECT_EQ(Text(&tree),
            "\nscopes:\n"
            "  scope \"second\" of goroutine 1\n"
            "    goroutine 8 [select]\n"
            "  scope \"first\" of goroutine 2\n"
            "    goroutine 9 [select]\n");
}

TEST_F(ScopeTreeTest, DeepTreesAreCut) {
  constexpr size_t kDepth = 1000;
  std::vector<ScopeRecord> chain;
  chain.reserve(kDepth);
  ScopeTree tree;
  tree.start();
  for (size_t i = 0; i < kDepth; i++) {
    chain.push_back(Record("s", i, i == 0 ? nullptr : &chain[i - 1]));
    if (i < 200) Add(&tree, i + 1, &chain[i]);
  }
  const std::string text = Text(&tree);
  EXPECT_NE(text.find("scope \"s\" of goroutine 30\n"), std::string::npos);
  EXPECT_EQ(text.find("scope \"s\" of goroutine 100\n"), std::string::npos);
}

TEST_F(ScopeTreeTest, GoroutinesThatDoNotFitAreCounted) {
  const ScopeRecord s = Record("s", 1);
  ScopeTree tree;  // not started: it has no room
  Add(&tree, 7, &s);
  Add(&tree, 8, &s);
  EXPECT_EQ(Text(&tree),
            "\nscopes:\n  ...2 goroutines elided for want of memory...\n");
}

TEST_F(ScopeTreeTest, NothingIsPrintedWithoutScopesOrUnasked) {
  ScopeTree tree;
  tree.start();
  Add(&tree, 7, nullptr);
  EXPECT_EQ(Text(&tree), "");
  debug.scopes = 0;
  const ScopeRecord s = Record("s", 1);
  ScopeTree unasked;
  unasked.start();
  Add(&unasked, 7, &s);
  EXPECT_EQ(Text(&unasked), "");
}

}  // namespace
}  // namespace gump::rt
