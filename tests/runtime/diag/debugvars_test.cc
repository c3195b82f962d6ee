#include "runtime/diag/debugvars.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "runtime/sched/runtime2.h"

namespace gump {
namespace {

class DebugVarsTest : public testing::Test {
 protected:
  void SetUp() override { Clear(); }
  void TearDown() override {
    Clear();
    rt::parsedebugvars();
  }
  static void Clear() {
    for (const char* name : {"GODEBUG", "GUMP_DEBUG", "GOX", "GUMP_X"}) {
      unsetenv(name);
    }
  }
  static const rt::DebugVars& Parse(const char* go, const char* gump) {
    if (go != nullptr) setenv("GODEBUG", go, 1);
    if (gump != nullptr) setenv("GUMP_DEBUG", gump, 1);
    rt::parsedebugvars();
    return rt::debug;
  }
};

TEST_F(DebugVarsTest, DefaultsWithoutVariables) {
  const rt::DebugVars& d = Parse(nullptr, nullptr);
  EXPECT_EQ(d.schedtrace, 0);
  EXPECT_EQ(d.containermaxprocs, 1);
  EXPECT_EQ(d.updatemaxprocs, 1);
  EXPECT_EQ(d.stackguardStrict, 0);
}

TEST_F(DebugVarsTest, KnownKeysAreSet) {
  const rt::DebugVars& d = Parse(
      "schedtrace=100,scheddetail=1,asyncpreemptoff=1,dontfreezetheworld=1,"
      "tracebackancestors=5,containermaxprocs=0,updatemaxprocs=0,"
      "tracebacklabels=0,stackguard=strict",
      nullptr);
  EXPECT_EQ(d.schedtrace, 100);
  EXPECT_EQ(d.scheddetail, 1);
  EXPECT_EQ(d.asyncpreemptoff, 1);
  EXPECT_EQ(d.dontfreezetheworld, 1);
  EXPECT_EQ(d.tracebackancestors, 5);
  EXPECT_EQ(d.tracebacklabels, 0);
  EXPECT_EQ(d.containermaxprocs, 0);
  EXPECT_EQ(d.updatemaxprocs, 0);
  EXPECT_EQ(d.stackguardStrict, 1);
}

TEST_F(DebugVarsTest, GumpDebugWinsKeyByKey) {
  const rt::DebugVars& d =
      Parse("schedtrace=100,scheddetail=1", "schedtrace=7,stackguard=best");
  EXPECT_EQ(d.schedtrace, 7);
  EXPECT_EQ(d.scheddetail, 1);
}

TEST_F(DebugVarsTest, LastOfARepeatedKeyCounts) {
  EXPECT_EQ(Parse("schedtrace=1,schedtrace=2", nullptr).schedtrace, 2);
}

TEST_F(DebugVarsTest, UnknownAndMalformedAreIgnored) {
  for (const char* bad :
       {"", ",", "=", ",,=,", "schedtrace", "schedtrace=", "schedtrace=abc",
        "schedtrace=1x", "schedtrace= 1", "schedtrace=+1",
        "schedtrace=99999999999", "nosuchkey=1", "=5", "SCHEDTRACE=5",
        "stackguard=maybe", "schedtrace=-", "schedtrace==1"}) {
    const rt::DebugVars& d = Parse(bad, nullptr);
    EXPECT_EQ(d.schedtrace, 0) << bad;
    EXPECT_EQ(d.stackguardStrict, 0) << bad;
  }
}

TEST_F(DebugVarsTest, GoodKeysSurviveBadNeighbours) {
  EXPECT_EQ(Parse("x,schedtrace=3,=,scheddetail=y", nullptr).schedtrace, 3);
}

TEST_F(DebugVarsTest, GumpNameWinsOverGoName) {
  EXPECT_EQ(rt::gogetenv("GOX", "GUMP_X"), nullptr);
  setenv("GOX", "go", 1);
  EXPECT_STREQ(rt::gogetenv("GOX", "GUMP_X"), "go");
  setenv("GUMP_X", "", 1);
  EXPECT_STREQ(rt::gogetenv("GOX", "GUMP_X"), "");
  EXPECT_EQ(rt::gogetenv("GO", "GUMP"), nullptr);  // a prefix is no match
}

TEST(ParseGomaxprocsTest, PositiveNumbersCount) {
  EXPECT_EQ(rt::parseGOMAXPROCS("1"), 1);
  EXPECT_EQ(rt::parseGOMAXPROCS("8"), 8);
  EXPECT_EQ(rt::parseGOMAXPROCS("1024"), rt::kMaxGomaxprocs);
}

TEST(ParseGomaxprocsTest, TooManyIsTheMaximum) {
  EXPECT_EQ(rt::parseGOMAXPROCS("100000"), rt::kMaxGomaxprocs);
  EXPECT_EQ(rt::parseGOMAXPROCS("99999999999999999999"), rt::kMaxGomaxprocs);
}

TEST(ParseGomaxprocsTest, AnythingElseIsNotSet) {
  EXPECT_EQ(rt::parseGOMAXPROCS(nullptr), 0);
  for (const char* s : {"", "0", "-1", "abc", "4x", " 4", "+4", "-", "4.0",
                        "-99999999999999999999"}) {
    EXPECT_EQ(rt::parseGOMAXPROCS(s), 0) << s;
  }
}

}  // namespace
}  // namespace gump
