// What the model says of a trace, and what the page and Perfetto get.
#include "tools/trace/model.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/tools/trace/made_trace.h"
#include "tools/trace/html.h"
#include "tools/trace/perfetto.h"

namespace trace_tool {
namespace {

Model Build(MadeTrace* trace) {
  absl::StatusOr<Model> model = BuildModel(trace->Bytes());
  EXPECT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->problem, "");
  return *std::move(model);
}

uint64_t Total(const Goroutine& g, GoStatus status) {
  return g.total[static_cast<size_t>(status)];
}

std::string Html(const Model& model, absl::string_view title) {
  std::string page;
  WriteHtml(model, title,
            [&](absl::string_view text) { absl::StrAppend(&page, text); });
  return page;
}

std::string Perfetto(const Model& model) {
  std::string json;
  WritePerfetto(model,
                [&](absl::string_view text) { absl::StrAppend(&json, text); });
  return json;
}

// Goroutine 1 makes goroutine 2, waits for it 300 ns, and is woken by it.
MadeTrace Handshake() {
  MadeTrace trace;
  trace.Generation(1)
      .M(7,
         "ProcStatus 0 1, GoStatus 1 7 2, GoCreate 2 4 3, +100 GoBlock 1 3, "
         "+40 GoStart 2 1, +260 GoUnblock 1 1 5, GoDestroy, +50 GoStart 1 2")
      .String(1, "chan receive")
      .String(2, "Producer")
      .String(3, "main")
      .String(4, "gump::chan::Recv")
      .String(5, "gumpGostart")
      .Stack(3, {{10, 4, 0, 0}, {11, 3, 0, 0}, {12, 5, 0, 0}})
      .Stack(4, {{20, 2, 0, 0}})
      .Stack(5, {{21, 2, 0, 7}});
  return trace;
}

TEST(ModelTest, TimesInStatesAddUp) {
  MadeTrace trace = Handshake();
  const Model m = Build(&trace);
  ASSERT_EQ(m.gs.size(), 2u);
  EXPECT_EQ(Total(m.gs[0], GoStatus::kWaiting), 300u);
  EXPECT_EQ(Total(m.gs[0], GoStatus::kRunnable), 60u);
  EXPECT_EQ(Total(m.gs[0], GoStatus::kRunning), 110u);
  EXPECT_EQ(Total(m.gs[1], GoStatus::kRunnable), 140u);
  EXPECT_EQ(Total(m.gs[1], GoStatus::kRunning), 270u);
}

TEST(ModelTest, WaitHasItsReasonAndPlace) {
  MadeTrace trace = Handshake();
  const Model m = Build(&trace);
  EXPECT_EQ(m.gs[0].longest, 300u);
  EXPECT_TRUE(m.gs[0].longest_waiting);
  const Why& why = m.whys[m.gs[0].longest_why];
  EXPECT_EQ(m.texts[why.reason], "chan receive");
  EXPECT_EQ(m.Where(why.stack), "main");
  ASSERT_EQ(m.blocking.size(), 1u);
  EXPECT_EQ(m.texts[m.blocking[0].reason], "chan receive");
  EXPECT_EQ(m.blocking[0].waits.max, 300u);
}

TEST(ModelTest, LatencyIsFromRunnableToRunning) {
  MadeTrace trace = Handshake();
  const Model m = Build(&trace);
  EXPECT_EQ(m.latency.count, 2u);
  EXPECT_EQ(m.latency.sum, 200u);
  EXPECT_EQ(m.latency.max, 140u);
  EXPECT_EQ(m.latency.buckets[6], 1u);  // 60 ns
  EXPECT_EQ(m.latency.buckets[8], 1u);  // 140 ns
}

TEST(ModelTest, GoroutineIsNamedAfterItsStartOrItsOutermostFrame) {
  MadeTrace trace = Handshake();
  const Model m = Build(&trace);
  EXPECT_EQ(m.texts[m.gs[1].name], "Producer");
  EXPECT_EQ(m.texts[m.gs[0].name], "main");
}

TEST(ModelTest, LambdaHasTheRoleOfTheFunctionThatItCalls) {
  MadeTrace trace;
  trace.Generation(1)
      .M(7, "ProcStatus 0 1, GoCreate 2 3 0, GoStart 2 1, GoBlock 0 4")
      .String(1, "main::{lambda()#1}::operator()")
      .String(2, "Client")
      .String(3, "gump::net::Conn::Read")
      .String(4, "Helper")
      .Stack(3, {{10, 1, 0, 0}})
      .Stack(4, {{11, 3, 0, 0}, {12, 4, 0, 0}, {13, 2, 0, 0}, {14, 1, 0, 0}});
  const Model m = Build(&trace);
  EXPECT_EQ(m.texts[m.gs[0].name], "main::{lambda()#1}::operator()");
  EXPECT_EQ(m.texts[m.gs[0].role], "Client");
}

TEST(ModelTest, WakeComesFromTheGoroutineThatUnblocks) {
  MadeTrace trace = Handshake();
  const Model m = Build(&trace);
  ASSERT_EQ(m.wakes.size(), 2u);  // a creation is one too
  EXPECT_EQ(m.wakes[0].from_g, 1u);
  EXPECT_EQ(m.wakes[0].to, 1u);
  EXPECT_EQ(m.wakes[1].from_g, 2u);
  EXPECT_EQ(m.wakes[1].to, 0u);
}

TEST(ModelTest, IdThatIsUsedAgainIsAnotherGoroutine) {
  MadeTrace trace;
  trace.Generation(1).M(
      7,
      "ProcStatus 0 1, GoStatus 1 7 2, GoCreate 2 0 0, GoDestroy, GoStart 2 1, "
      "GoCreate 1 0 0");
  const Model m = Build(&trace);
  ASSERT_EQ(m.gs.size(), 3u);
  EXPECT_EQ(m.gs[0].id, 1u);
  EXPECT_EQ(m.gs[2].id, 1u);
  EXPECT_EQ(m.gs[2].maker, 2u);
}

TEST(ModelTest, GenerationDoesNotInterruptAWait) {
  MadeTrace trace;
  trace.Generation(1)
      .M(7, "ProcStatus 0 1, GoStatus 1 7 2, GoBlock 1 0")
      .String(1, "sleep");
  trace.Generation(2).M(
      7, "ProcStatus 0 1, GoStatus 1 none 4, +1000 GoUnblock 1 1 0");
  const Model m = Build(&trace);
  ASSERT_EQ(m.blocking.size(), 1u);
  EXPECT_EQ(m.blocking[0].waits.max, 1020u);
}

TEST(ModelTest, WaitThatIsNotOverCountsToTheEnd) {
  MadeTrace trace;
  trace.Generation(1)
      .M(7, "ProcStatus 0 1, GoStatus 1 7 2, GoBlock 1 0, +700 ProcStop")
      .String(1, "sleep");
  const Model m = Build(&trace);
  EXPECT_EQ(m.gs[0].longest, 700u);
  EXPECT_TRUE(m.gs[0].longest_open);
  EXPECT_TRUE(m.blocking.empty());
}

TEST(ModelTest, StolenPIsIdle) {
  MadeTrace trace;
  trace.Generation(1)
      .M(7, "ProcStatus 0 1, GoStatus 1 7 2, GoSyscallBegin 1 0")
      .M(8, "ProcSteal 0 2 7")
      .M(7, "GoSyscallEndBlocked");
  const Model m = Build(&trace);
  ASSERT_EQ(m.ps.size(), 1u);
  EXPECT_EQ(m.ps[0].changes.back().g, kPIdle);
  EXPECT_TRUE(m.ps[0].changes[m.ps[0].changes.size() - 2].in_call);
  EXPECT_EQ(m.gs[0].changes.back().state, GoStatus::kRunnable);
}

TEST(ModelTest, RegionsTasksLogsAndPausesHaveTheirTimes) {
  MadeTrace trace;
  trace.Generation(1)
      .M(7,
         "ProcStatus 0 1, GoStatus 1 7 2, UserTaskBegin 5 0 1 0, "
         "UserRegionBegin 5 2 0, "
         "UserLog 5 1 2 0, UserRegionEnd 5 2 0, UserTaskEnd 5 0, STWBegin 1 0, "
         "STWEnd")
      .String(1, "one")
      .String(2, "two");
  const Model m = Build(&trace);
  ASSERT_EQ(m.regions.size(), 1u);
  EXPECT_EQ(m.regions[0].end - m.regions[0].begin, 20u);
  ASSERT_EQ(m.tasks.size(), 1u);
  EXPECT_EQ(m.tasks[0].end - m.tasks[0].begin, 40u);
  ASSERT_EQ(m.logs.size(), 1u);
  EXPECT_EQ(m.texts[m.logs[0].text], "one: two");
  ASSERT_EQ(m.pauses.size(), 1u);
  EXPECT_EQ(m.texts[m.pauses[0].reason], "one");
}

// SampleBatch makes a batch of samples: time, m, p, g, stack.
std::string SampleBatch(const std::vector<std::array<uint64_t, 5>>& samples) {
  std::string data(1, static_cast<char>(Ev::kCpuSamples));
  for (const auto& sample : samples) {
    data.push_back(static_cast<char>(Ev::kCpuSample));
    for (uint64_t number : sample) data += MadeTrace::Number(number);
  }
  return data;
}

// HandshakeWithSamples adds samples to Handshake, in which goroutine 2 runs
// from 1160 ns to 1440 ns.
MadeTrace HandshakeWithSamples() {
  MadeTrace trace = Handshake();
  trace.Batch(kNoId, SampleBatch({{1300, 7, 0, 2, 5},
                                  {1200, 7, 0, 2, 4},
                                  {1250, 8, kNoId, 0, 4},
                                  {9000, 7, 0, 2, 4},
                                  {1, 7, 0, 2, 4}}));
  return trace;
}

TEST(ModelTest, SamplesAreInOrderAndHaveTheirGoroutineAndStack) {
  MadeTrace trace = HandshakeWithSamples();
  const Model m = Build(&trace);
  ASSERT_EQ(m.samples.size(), 5u);
  // At the first time, goroutine 2 does not exist yet. At the last, it has
  // ended.
  EXPECT_EQ(m.samples[0].ns, m.begin);
  EXPECT_EQ(m.samples[0].g, 0u);
  EXPECT_EQ(m.samples[4].ns, m.end);
  EXPECT_EQ(m.samples[4].g, 0u);
  EXPECT_EQ(m.samples[1].ns, 1200u);
  ASSERT_NE(m.samples[1].g, 0u);
  EXPECT_EQ(m.gs[m.samples[1].g - 1].id, 2u);
  EXPECT_EQ(m.Where(m.samples[1].stack), "Producer");
  EXPECT_EQ(m.samples[2].g, 0u);
  EXPECT_EQ(m.samples[3].ns, 1300u);
}

// In another generation, the ids of stacks are others.
TEST(ModelTest, SamplesOfEachGenerationHaveItsStacks) {
  MadeTrace trace;
  for (const uint64_t n : {uint64_t{1}, uint64_t{2}}) {
    trace.Generation(n)
        .M(7, "ProcStatus 0 1, GoStatus 1 7 2")
        .Batch(kNoId, SampleBatch({{2000 * n, 7, 0, 1, 9}}))
        .String(1, n == 1 ? "First" : "Second")
        .Stack(9, {{10 * n, 1, 0, 0}});
  }
  const Model m = Build(&trace);
  ASSERT_EQ(m.samples.size(), 2u);
  EXPECT_EQ(m.Where(m.samples[0].stack), "First");
  EXPECT_EQ(m.Where(m.samples[1].stack), "Second");
}

TEST(ModelTest, InvalidTraceGivesAllBeforeTheFault) {
  MadeTrace trace;
  trace.Generation(1).M(7,
                        "ProcStatus 0 1, GoStatus 1 7 2, GoDestroy, GoDestroy");
  absl::StatusOr<Model> m = BuildModel(trace.Bytes());
  ASSERT_TRUE(m.ok());
  EXPECT_EQ(m->events, 3u);
  EXPECT_TRUE(absl::StrContains(m->problem, "GoDestroy at byte")) << m->problem;
}

TEST(ModelTest, CutOffTraceSaysSo) {
  MadeTrace trace = Handshake();
  trace.Generation(2).M(7, "ProcStatus 0 1");
  std::string bytes = trace.Bytes();
  bytes.pop_back();
  absl::StatusOr<Model> m = BuildModel(bytes);
  ASSERT_TRUE(m.ok());
  EXPECT_EQ(m->generations, 1u);
  EXPECT_TRUE(absl::StrContains(m->problem, "generation 2 is incomplete"))
      << m->problem;
  EXPECT_TRUE(absl::StrContains(Html(*m, "t"), "generation 2 is incomplete"));
}

// Each byte of a trace is changed in turn. The result is a model that can be
// drawn, or an error.
TEST(ModelTest, DamagedFileGivesAModelOrAnError) {
  MadeTrace trace = Handshake();
  trace.Generation(2).M(7, "ProcStatus 0 1, GoStatus 1 7 2, GoBlock 0 0");
  const std::string good = trace.Bytes();
  size_t models = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int with :
         {0x00, 0x01, 0x10, 0x7f, 0x80, 0xff, int{good[i] + 1}}) {
      std::string bad = good;
      bad[i] = static_cast<char>(with);
      const absl::StatusOr<Model> m = BuildModel(bad);
      if (!m.ok()) continue;
      ++models;
      EXPECT_GE(m->end, m->begin);
      EXPECT_FALSE(Html(*m, "t").empty());
      EXPECT_FALSE(Perfetto(*m).empty());
    }
  }
  EXPECT_GT(models, good.size());
}

TEST(ModelTest, FirstEventMayBeAtTimeZero) {
  MadeTrace trace;
  trace.At(0).Generation(1).M(7,
                              "+0 ProcStatus 0 1, GoStatus 1 7 2, GoBlock 0 0");
  const Model m = Build(&trace);
  EXPECT_EQ(m.begin, 0u);
  EXPECT_EQ(m.gs[0].changes[0].ns, 10u);
}

TEST(DistributionTest, PercentilesAreExact) {
  std::vector<uint64_t> values;
  for (uint64_t i = 101; i > 0; --i) values.push_back(i);
  const Distribution d = Distribution::Of(&values);
  EXPECT_EQ(d.count, 101u);
  EXPECT_EQ(d.p50, 51u);
  EXPECT_EQ(d.p90, 91u);
  EXPECT_EQ(d.p99, 100u);
  EXPECT_EQ(d.max, 101u);
}

// ---- The page and Perfetto --------------------------------------------------

TEST(HtmlTest, PageNeedsNothingElse) {
  MadeTrace trace = Handshake();
  const std::string page = Html(Build(&trace), "a.trace");
  for (const char* outside :
       {"http:", "https:", "src=", "href=", "@import", "url("}) {
    // SVG's namespace is a name, and not loaded.
    const bool found = absl::StrContains(
        absl::StrReplaceAll(page, {{"http://www.w3.org/2000/svg", ""}}),
        outside);
    EXPECT_FALSE(found) << outside;
  }
}

TEST(HtmlTest, NamesCannotEndTheScript) {
  MadeTrace trace;
  trace.Generation(1)
      .M(7, "ProcStatus 0 1, GoStatus 1 7 2, GoBlock 1 0")
      .String(1, "</script><b>\"\\\x01\xff");
  const std::string page = Html(Build(&trace), "</title><b>&");
  EXPECT_FALSE(absl::StrContains(page, "</script><b>"));
  EXPECT_FALSE(absl::StrContains(page, "</title><b>"));
  EXPECT_TRUE(
      absl::StrContains(page, "\"\\u003c/script>\\u003cb>\\\"\\\\\\u0001?\""));
}

TEST(PerfettoTest, TracksShowStatesAndFlows) {
  MadeTrace trace = Handshake();
  const std::string json = Perfetto(Build(&trace));
  EXPECT_TRUE(absl::StrContains(
      json,
      R"("name":"waiting: chan receive","cat":"waiting","ts":0.120,"dur":0.300,"args":{"stack":)"))
      << json;
  EXPECT_TRUE(absl::StrContains(
      json,
      R"({"ph":"X","pid":1,"tid":1,"name":"G2 Producer","cat":"running","ts":0.160,"dur":0.270})"))
      << json;
  EXPECT_TRUE(absl::StrContains(
      json,
      R"({"ph":"s","pid":2,"tid":2,"name":"wakes","cat":"wake","id":1,"ts":0.420})"))
      << json;
  EXPECT_TRUE(absl::StrContains(
      json,
      R"({"ph":"f","pid":2,"tid":1,"name":"wakes","cat":"wake","id":1,"bp":"e","ts":0.420})"))
      << json;
}

TEST(PerfettoTest, SamplesAreMarksOfTheirGoroutine) {
  MadeTrace trace = HandshakeWithSamples();
  const std::string json = Perfetto(Build(&trace));
  EXPECT_TRUE(absl::StrContains(
      json,
      R"({"ph":"i","pid":2,"tid":2,"name":"Producer","cat":"cpu sample","s":"t","ts":0.190,"args":{"stack":"Producer"}})"))
      << json;
}

}  // namespace
}  // namespace trace_tool
