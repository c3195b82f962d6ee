// The structure of a trace: header, batches, generations, tables.
#include "tools/trace/reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/tools/trace/made_trace.h"

namespace trace_tool {
namespace {

constexpr char kOneP[] = "ProcStatus 0 1, GoStatus 1 7 2, ProcsChange 1 0";

struct Result {
  std::vector<uint64_t> generations;
  std::string fault;
  bool cut_off = false;
};

Result Read(const std::string& bytes) {
  Result result;
  absl::StatusOr<Reader> reader = Reader::Open(bytes);
  if (!reader.ok()) {
    result.fault = std::string(reader.status().message());
    return result;
  }
  Generation g;
  while (reader->Next(&g)) result.generations.push_back(g.number);
  EXPECT_FALSE(reader->Next(&g));
  result.fault = std::string(reader->status().message());
  result.cut_off = reader->cut_off();
  return result;
}

// The fault of a trace with one generation, in which bytes are a batch.
std::string FaultOfBatch(const std::string& data) {
  return Read(MadeTrace().Generation(1).M(7, kOneP).Batch(kNoId, data).Bytes())
      .fault;
}

std::string Bytes(std::initializer_list<uint64_t> numbers) {
  std::string bytes;
  for (uint64_t n : numbers) bytes += MadeTrace::Number(n);
  return bytes;
}

#define EXPECT_FAULT(fault, text)                                 \
  do {                                                            \
    const std::string the_fault = fault;                          \
    EXPECT_TRUE(absl::StrContains(the_fault, text)) << the_fault; \
  } while (false)

// ---- The header -------------------------------------------------------------

TEST(ReaderTest, EachVersionIsRead) {
  for (int version : {22, 23, 25, 26}) {
    const Result r = Read(MadeTrace(version).Generation(1).M(7, kOneP).Bytes());
    EXPECT_EQ(r.fault, "") << version;
    EXPECT_EQ(r.generations, std::vector<uint64_t>{1});
  }
}

TEST(ReaderTest, OtherVersionIsRefused) {
  for (int version : {11, 21, 24, 27}) {
    EXPECT_FAULT(
        Read(MadeTrace(version).Generation(1).M(7, kOneP).Bytes()).fault,
        absl::StrCat("the header is \"go 1.", version));
  }
}

TEST(ReaderTest, FileWithoutHeaderIsRefused) {
  for (const char* bytes : {"", "go 1.23",
                            "\x7f"
                            "ELF and some more bytes"}) {
    EXPECT_FAULT(Read(bytes).fault, "not an execution trace");
  }
}

TEST(ReaderTest, HeaderAloneIsCutOff) {
  const Result r = Read(MadeTrace().Bytes());
  EXPECT_TRUE(r.cut_off);
  EXPECT_FAULT(r.fault, "byte 16");
}

// ---- Batches ----------------------------------------------------------------

TEST(ReaderTest, BatchThatBeginsWithAnotherByteIsRefused) {
  EXPECT_FAULT(
      Read(MadeTrace().Generation(1).M(7, kOneP).Raw("\x2a").Bytes()).fault,
      "a batch begins with 1, not with 42");
}

TEST(ReaderTest, BatchMayHave65536Bytes) {
  const std::string full =
      "\x04\x05" + Bytes({1, 1024}) + std::string(1024, 'a');
  EXPECT_EQ(FaultOfBatch(full), "");
  EXPECT_EQ(
      Read(MadeTrace().Generation(1).Batch(7, std::string(65536, 'x')).Bytes())
          .fault,
      "");
  EXPECT_FAULT(
      Read(MadeTrace().Generation(1).Batch(7, std::string(65537, 'x')).Bytes())
          .fault,
      "a batch of 65537 bytes");
}

TEST(ReaderTest, NumberAbove64BitsIsRefused) {
  const std::string most = MadeTrace::Number(~uint64_t{0});
  EXPECT_EQ(Read(MadeTrace()
                     .Generation(1)
                     .Raw("\x01\x01" + most + "\x05")
                     .Raw(std::string(1, 0))
                     .Bytes())
                .fault,
            "");
  EXPECT_FAULT(Read(MadeTrace()
                        .Generation(1)
                        .Raw("\x01\x01" + std::string(9, '\xff') + "\x02")
                        .Raw("padding")
                        .Bytes())
                   .fault,
               "a number above 64 bits");
}

TEST(ReaderTest, GenerationZeroIsRefused) {
  EXPECT_FAULT(
      Read(MadeTrace().BareGeneration(1).Raw(Bytes({1, 0, 7, 5, 0})).Bytes())
          .fault,
      "generation 0");
}

TEST(ReaderTest, ExperimentalBatchIsSkipped) {
  const std::string batch = Bytes({49, 1, 1, 7, 5, 3}) + "xyz";
  EXPECT_EQ(
      Read(MadeTrace().Generation(1).Raw(batch).M(7, kOneP).Bytes()).fault, "");
  EXPECT_FAULT(
      Read(MadeTrace(22).Generation(1).Raw(batch).M(7, kOneP).Bytes()).fault,
      "not with 49");
}

// ---- Generations ------------------------------------------------------------

TEST(ReaderTest, GenerationsFollowEachOther) {
  MadeTrace good, gap;
  good.Generation(4).M(7, kOneP).Generation(5).M(7, kOneP);
  EXPECT_EQ(Read(good.Bytes()).generations, (std::vector<uint64_t>{4, 5}));
  gap.Generation(4).M(7, kOneP).Generation(6).M(7, kOneP);
  EXPECT_FAULT(Read(gap.Bytes()).fault, "a batch of generation 6 is mixed in");
}

TEST(ReaderTest, GenerationsMayNotBeMixed) {
  MadeTrace mixed;
  mixed.Generation(1).M(7, kOneP).Generation(2).M(7, kOneP).BareGeneration(1).M(
      7, kOneP);
  EXPECT_FAULT(Read(mixed.Bytes()).fault,
               "a batch of generation 1 is mixed in");
}

TEST(ReaderTest, Go126NeedsTheMarkAtTheEnd) {
  MadeTrace good(26), bad(26), none(26);
  good.Generation(1).M(7, kOneP).Generation(2).M(7, kOneP);
  EXPECT_EQ(Read(good.Bytes()).fault, "");
  bad.WithoutEnd().Generation(1).M(7, kOneP).Generation(2).M(7, kOneP);
  EXPECT_FAULT(Read(bad.Bytes()).fault, "generation 2 is mixed in");
  none.WithoutEnd().Generation(1).M(7, kOneP);
  const Result r = Read(none.Bytes());
  EXPECT_TRUE(r.cut_off);
  EXPECT_FAULT(r.fault, "generation 1 is incomplete");
  EXPECT_FAULT(Read(MadeTrace(26).Raw("\x34").Bytes()).fault,
               "the end of no generation");
}

TEST(ReaderTest, GenerationNeedsItsClock) {
  MadeTrace second;
  second.BareGeneration(1).M(7, kOneP).Generation(2).M(7, kOneP);
  EXPECT_FAULT(Read(second.Bytes()).fault, "no Frequency");
  EXPECT_FAULT(Read(MadeTrace().BareGeneration(1).M(7, kOneP).Bytes()).fault,
               "incomplete");
  EXPECT_FAULT(FaultOfBatch(Bytes({8, 5})), "a second Frequency");
  EXPECT_FAULT(
      Read(MadeTrace().BareGeneration(1).Batch(7, Bytes({8, 0})).Bytes()).fault,
      "a Frequency of 0");
}

TEST(ReaderTest, Go125NeedsAClockSnapshot) {
  MadeTrace trace(25);
  trace.BareGeneration(1).Batch(kNoId, Bytes({50, 8, 1000})).M(7, kOneP);
  trace.Generation(2).M(7, kOneP);
  EXPECT_FAULT(Read(trace.Bytes()).fault, "no ClockSnapshot");
  MadeTrace two(25);
  two.Generation(1).Batch(kNoId, Bytes({50, 51, 1, 2, 3, 4}));
  EXPECT_FAULT(Read(two.Bytes()).fault, "a second ClockSnapshot");
}

TEST(ReaderTest, TicksBecomeNanoseconds) {
  const std::string bytes = MadeTrace()
                                .BareGeneration(1)
                                .Batch(kNoId, Bytes({8, 15'625'000}))
                                .Bytes();
  absl::StatusOr<Reader> reader = Reader::Open(bytes);
  Generation g;
  ASSERT_TRUE(reader.ok() && reader->Next(&g));
  EXPECT_EQ(g.Nanoseconds(1), 64u);
  EXPECT_EQ(g.Nanoseconds(uint64_t{1} << 56), uint64_t{1} << 62);
}

// A process that dies leaves a file that ends anywhere.
TEST(ReaderTest, CutOffFileGivesItsWholeGenerations) {
  for (int version : {23, 25, 26}) {
    MadeTrace trace(version);
    trace.Generation(1).M(7, kOneP).String(1, "a").Generation(2);
    const size_t second = trace.size();  // its clock follows generation 1
    trace.M(7, kOneP);
    const std::string bytes = trace.Bytes();
    for (size_t size = kHeaderSize; size < bytes.size(); ++size) {
      const Result r = Read(bytes.substr(0, size));
      // Before Go 1.26, a file that ends after any batch looks whole.
      if (version == 26) {
        EXPECT_TRUE(r.cut_off || r.generations.size() == 1);
      }
      if (size >= second) {
        EXPECT_EQ(r.generations.at(0), 1u);
      }
      if (r.fault.empty()) continue;
      EXPECT_TRUE(r.cut_off) << r.fault;
      EXPECT_FAULT(r.fault, absl::StrCat("at byte ", size));
    }
  }
}

// ---- Strings and stacks -----------------------------------------------------

TEST(ReaderTest, StringsAreKnownByTheirIds) {
  const std::string bytes =
      MadeTrace().Generation(1).String(3, "sync").String(9, "").Bytes();
  absl::StatusOr<Reader> reader = Reader::Open(bytes);
  Generation g;
  ASSERT_TRUE(reader.ok() && reader->Next(&g));
  EXPECT_EQ(g.String(3), "sync");
  EXPECT_EQ(g.String(9), "");
  EXPECT_EQ(g.String(0), "");
  EXPECT_FALSE(g.String(4).has_value());
}

TEST(ReaderTest, StringIdsAreUniqueAndNotZero) {
  EXPECT_FAULT(
      Read(MadeTrace().Generation(1).String(3, "a").String(3, "a").Bytes())
          .fault,
      "string 3 is defined twice");
  EXPECT_FAULT(Read(MadeTrace().Generation(1).String(0, "a").Bytes()).fault,
               "string 0 is defined");
  MadeTrace again;
  again.Generation(1).String(3, "a").Generation(2).String(3, "b");
  EXPECT_EQ(Read(again.Bytes()).fault, "");
}

TEST(ReaderTest, LongStringIsRefused) {
  EXPECT_EQ(
      FaultOfBatch("\x04\x05" + Bytes({1, 1024}) + std::string(1024, 'a')), "");
  EXPECT_FAULT(
      FaultOfBatch("\x04\x05" + Bytes({1, 1025}) + std::string(1025, 'a')),
      "string 1 has 1025 bytes");
}

TEST(ReaderTest, DamagedTablesAreRefused) {
  EXPECT_FAULT(FaultOfBatch("\x04\x05" + Bytes({1, 9}) + "short"),
               "string 1 leaves its batch");
  EXPECT_FAULT(FaultOfBatch("\x04\x05"), "a String without its id or size");
  EXPECT_FAULT(FaultOfBatch("\x04\x10"), "event 16 in a batch of strings");
  EXPECT_FAULT(FaultOfBatch("\x02\x10"), "event 16 in a batch of stacks");
  EXPECT_FAULT(FaultOfBatch(Bytes({2, 3, 1, 2, 5, 0, 0, 0})),
               "stack 1 leaves its batch");
  EXPECT_FAULT(FaultOfBatch(Bytes({6, 7, 1, 2})),
               "a CPUSample leaves its batch");
}

TEST(ReaderTest, StackIdsAreUniqueAndNotZero) {
  EXPECT_EQ(
      Read(MadeTrace().Generation(1).Stack(3, {}).Stack(4, {}).Bytes()).fault,
      "");
  EXPECT_FAULT(
      Read(MadeTrace().Generation(1).Stack(3, {}).Stack(3, {}).Bytes()).fault,
      "stack 3 is defined twice");
  EXPECT_FAULT(Read(MadeTrace().Generation(1).Stack(0, {}).Bytes()).fault,
               "stack 0 is defined");
}

TEST(ReaderTest, StackHasAtMost128Frames) {
  const Frame f{5, 0, 0, 0};
  EXPECT_EQ(Read(MadeTrace()
                     .Generation(1)
                     .Stack(3, std::vector<Frame>(128, f))
                     .Bytes())
                .fault,
            "");
  EXPECT_FAULT(Read(MadeTrace()
                        .Generation(1)
                        .Stack(3, std::vector<Frame>(129, f))
                        .Bytes())
                   .fault,
               "stack 3 has 129 frames");
}

TEST(ReaderTest, FrameRefersToDefinedStrings) {
  EXPECT_EQ(Read(MadeTrace()
                     .Generation(1)
                     .Stack(3, {{5, 8, 0, 1}})
                     .String(8, "f")
                     .Bytes())
                .fault,
            "");
  EXPECT_FAULT(
      Read(MadeTrace().Generation(1).Stack(3, {{5, 8, 0, 1}}).Bytes()).fault,
      "refers to string 8");
  EXPECT_FAULT(
      Read(MadeTrace().Generation(1).Stack(3, {{5, 0, 9, 1}}).Bytes()).fault,
      "refers to string 9");
}

TEST(ReaderTest, PcHasOneFrameInAGeneration) {
  MadeTrace same, other, later;
  same.Generation(1)
      .Stack(3, {{5, 8, 0, 1}})
      .Stack(4, {{5, 8, 0, 1}})
      .String(8, "f");
  EXPECT_EQ(Read(same.Bytes()).fault, "");
  other.Generation(1)
      .Stack(3, {{5, 8, 0, 1}})
      .Stack(4, {{5, 8, 0, 2}})
      .String(8, "f");
  EXPECT_FAULT(Read(other.Bytes()).fault, "stack 4: the frame at pc 5 differs");
  later.Generation(1).Stack(3, {{5, 8, 0, 1}}).String(8, "f");
  later.Generation(2).Stack(3, {{5, 9, 0, 1}}).String(9, "f");
  EXPECT_EQ(Read(later.Bytes()).fault, "");
}

TEST(ReaderTest, SampleRefersToADefinedStack) {
  const std::string batch = Bytes({6, 7, 100, 7, 0, 1, 3});
  EXPECT_EQ(
      Read(MadeTrace().Generation(1).Batch(kNoId, batch).Stack(3, {}).Bytes())
          .fault,
      "");
  EXPECT_FAULT(FaultOfBatch(batch), "a CPUSample refers to stack 3");
}

}  // namespace
}  // namespace trace_tool
