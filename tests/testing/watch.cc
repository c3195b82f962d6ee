// This file is linked to the tests that also run as watched/... With
// GUMP_TEST_WATCH=10ms, a thread looks into the process every 10 ms while the
// tests run, in every way that the library has. Their outcome must not change.
//
//  * At each look, the thread takes the next of these: the goroutine profile in
//    each form, the profiles of threads, blocking and mutexes, all metrics, the
//    goroutines as JSON, and a dump.
//  * Meanwhile it starts and ends CPU profiles, execution traces and flight
//    recordings, and switches the block and mutex profiles on and off. The
//    periods of these have no common divisor, so each pair of them soon
//    overlaps in every way.
//  * The search for leaks reads all memory with the world stopped, so it gets
//    one part in twenty of the time.
//
// The readers of the tests check all output, and the thread then drops it. It
// keeps a trace that is not valid, and prints the name of the file.
//
// The thread is no goroutine, because tests count those, and it holds no P. It
// does not watch the process of a death test, because that test may know all
// threads of the process.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/debug.h"
#include "gump/metrics.h"
#include "gump/pprof.h"
#include "gump/runtime.h"
#include "gump/trace.h"
#include "tests/testing/json_reader.h"
#include "tests/testing/profile_reader.h"
#include "tools/trace/event_reader.h"

namespace gump::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Output is a file in memory.
class Output {
 public:
  Output() : fd_(::memfd_create("watch", MFD_CLOEXEC)) {}
  ~Output() {
    if (fd_ >= 0) ::close(fd_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // The test may have used all descriptors.
  bool ok() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  // Take returns what was written, and empties the file.
  std::string Take() {
    std::string all;
    char part[65'536];
    off_t at = 0;
    for (ssize_t n; (n = ::pread(fd_, part, sizeof(part), at)) > 0; at += n) {
      all.append(part, static_cast<size_t>(n));
    }
    EXPECT_EQ(::ftruncate(fd_, 0), 0);
    ::lseek(fd_, 0, SEEK_SET);
    return all;
  }

 private:
  const int fd_;
};

absl::Status CheckTrace(const std::string& bytes) {
  absl::StatusOr<trace_tool::EventReader> reader =
      trace_tool::EventReader::Open(bytes);
  if (!reader.ok()) return reader.status();
  while (reader->Next()) reader->ForEachEvent([](const trace_tool::Event&) {});
  return reader->status();
}

void ExpectTrace(const std::string& bytes) {
  const absl::Status s = CheckTrace(bytes);
  if (s.ok()) return;
  std::string name = ::testing::TempDir() + "/watched.trace.XXXXXX";
  const int fd = ::mkstemp(name.data());
  EXPECT_EQ(::write(fd, bytes.data(), bytes.size()),
            static_cast<ssize_t>(bytes.size()));
  ::close(fd);
  ADD_FAILURE() << s << "\nThe trace is " << name;
}

void ExpectProfile(const std::string& bytes) {
  EXPECT_EQ(ReadProfile(bytes).error, "");
}

// AllMetrics reads all metrics, and checks that no cumulative one has become
// smaller.
class AllMetrics {
 public:
  AllMetrics() {
    for (const metrics::Description& d : metrics::All()) {
      samples_.push_back({d.name, {}});
    }
  }
  void Look() {
    const std::vector<metrics::Sample> before = samples_;
    metrics::Read(absl::MakeSpan(samples_));
    for (size_t i = 0; i < samples_.size(); i++) {
      if (metrics::All()[i].cumulative) Grows(before[i], samples_[i]);
    }
    EXPECT_NE(metrics::Prometheus(), "");
  }

 private:
  static void Grows(const metrics::Sample& before, const metrics::Sample& now) {
    if (before.value.Kind() == metrics::Kind::kBad) return;  // the first look
    switch (now.value.Kind()) {
      case metrics::Kind::kBad:
        ADD_FAILURE() << now.name << " is gone";
        break;
      case metrics::Kind::kUint64:
        EXPECT_GE(now.value.Uint64(), before.value.Uint64()) << now.name;
        break;
      case metrics::Kind::kFloat64:
        EXPECT_GE(now.value.Float64(), before.value.Float64()) << now.name;
        break;
      case metrics::Kind::kFloat64Histogram:
        for (size_t i = 0; i < now.value.Histogram().counts.size(); i++) {
          EXPECT_GE(now.value.Histogram().counts[i],
                    before.value.Histogram().counts[i])
              << now.name << ", bucket " << i;
        }
        break;
    }
  }

  std::vector<metrics::Sample> samples_;
};

// Watch is what the thread does. Its functions are called on that thread.
class Watch {
 public:
  // Look takes the next look, and begins or ends what lasts for several.
  void Look() {
    constexpr void (Watch::*kLooks[])() = {
        &Watch::Goroutines, &Watch::Block,         &Watch::GoroutinesText,
        &Watch::Metrics,    &Watch::JsonText,      &Watch::Mutex,
        &Watch::Dump,       &Watch::GoroutineDump, &Watch::Threads};
    if (ticks_ % 3 == 0) Cpu();
    if (ticks_ % 5 == 1) Trace();
    if (ticks_ % 7 == 2) Recorder();
    if (ticks_ % 11 == 0) pprof::SetBlockProfileRate(block_ ^= 1);
    if (ticks_ % 13 == 0) pprof::SetMutexProfileFraction(mutex_ ^= 1);
    (this->*kLooks[ticks_ % std::size(kLooks)])();
    Leaks();
    ticks_++;
  }

  // SawAll returns true if each look has been taken, and something of each kind
  // that lasts has been checked.
  bool SawAll() const { return ticks_ >= kEnough; }

  // End ends what still runs, and reports.
  void End() {
    if (profiling_) Cpu();
    if (tracing_) Trace();
    recorder_.Stop();
    pprof::SetBlockProfileRate(0);
    pprof::SetMutexProfileFraction(0);
    std::string text = absl::StrCat(ticks_, " looks:");
    for (const auto& [name, n] : seen_)
      absl::StrAppend(&text, " ", n, " ", name);
    std::printf("%s; %llu bytes\n", text.c_str(),
                static_cast<unsigned long long>(bytes_));
  }

 private:
  // Recorder comes last: Look calls it at ticks 2, 9 and 16.
  static constexpr size_t kEnough = 2 + 2 * 7 + 1;

  std::string Saw(const char* name, std::string bytes) {
    seen_[name]++;
    bytes_ += bytes.size();
    return bytes;
  }

  // Profile returns a profile, or "" if there is no descriptor for it.
  std::string Profile(const char* name, int debug) {
    Output out;
    if (!out.ok()) return "";
    const absl::Status s = pprof::WriteProfile(name, out.fd(), debug);
    if (absl::IsUnimplemented(s)) return "";  // leaks under ThreadSanitizer
    EXPECT_TRUE(s.ok()) << name << ": " << s;
    return Saw(name, out.Take());
  }
  void Binary(const char* name) {
    if (const std::string p = Profile(name, 0); !p.empty()) ExpectProfile(p);
  }
  void Text(const char* name, int debug, std::string_view begin) {
    const std::string p = Profile(name, debug);
    if (!p.empty()) {
      EXPECT_EQ(p.substr(0, begin.size()), begin);
    }
  }

  void Goroutines() { Binary("goroutine"); }
  void GoroutinesText() { Text("goroutine", 1, "goroutine profile: total "); }
  void GoroutineDump() { Text("goroutine", 2, "goroutine "); }
  void Threads() { Binary("threadcreate"); }
  void Block() {
    Binary("block");
    Text("block", 1, "--- contention:\n");
  }
  void Mutex() {
    Binary("mutex");
    Text("mutex", 1, "--- mutex:\n");
  }
  void Dump() {
    const std::string all = Saw("dumps", runtime::Stack(/*all=*/true));
    EXPECT_NE(all.find("goroutine "), std::string::npos);
    EXPECT_GE(runtime::NumGoroutine(), 1);
  }
  void JsonText() {
    std::string error;
    const Json all = ReadJson(Saw("JSON", debug::GoroutinesJSON()), &error);
    EXPECT_EQ(error, "");
    EXPECT_FALSE(all.items.empty());
  }
  void Metrics() {
    metrics_.Look();
    seen_["metrics"]++;
  }

  // The test may profile or trace, too. Then this thread does not.
  static bool Began(const absl::Status& s) {
    EXPECT_TRUE(s.ok() || absl::IsFailedPrecondition(s)) << s;
    return s.ok();
  }
  void Cpu() {
    if (!profiling_) {
      profiling_ = profile_.ok() &&
                   Began(pprof::StartCPUProfile(profile_.fd(), /*hz=*/1000));
      return;
    }
    pprof::StopCPUProfile();
    profiling_ = false;
    ExpectProfile(Saw("cpu", profile_.Take()));
  }
  void Trace() {
    if (!tracing_) {
      tracing_ = trace_.ok() && Began(trace::Start(trace_.fd()));
      return;
    }
    trace::Stop();
    tracing_ = false;
    ExpectTrace(Saw("traces", trace_.Take()));
  }
  void Recorder() {
    if (!recorder_.Enabled()) {
      (void)Began(recorder_.Start());
      return;
    }
    if (Output out; out.ok()) {
      const absl::StatusOr<size_t> size = recorder_.WriteTo(out.fd());
      EXPECT_TRUE(size.ok()) << size.status();
      ExpectTrace(Saw("recordings", out.Take()));
    }
    if (++recordings_ % 2 == 0) recorder_.Stop();
  }
  void Leaks() {
    if (Clock::now() < next_leaks_) return;
    const auto begin = Clock::now();
    Binary("goroutineleak");
    next_leaks_ = Clock::now() + 20 * (Clock::now() - begin);
  }

  AllMetrics metrics_;
  Output profile_, trace_;
  bool profiling_ = false, tracing_ = false;
  trace::FlightRecorder recorder_;
  int recordings_ = 0;
  int block_ = 0, mutex_ = 0;
  Clock::time_point next_leaks_;
  size_t ticks_ = 0;
  std::map<std::string, int> seen_;
  uint64_t bytes_ = 0;
};

class Watcher : public ::testing::Environment {
 public:
  void SetUp() override {
    const char* every = std::getenv("GUMP_TEST_WATCH");
    if (every == nullptr) return;
    if (!GTEST_FLAG_GET(internal_run_death_test).empty()) return;
    absl::Duration pause;
    ASSERT_TRUE(absl::ParseDuration(every, &pause)) << every;
    stop_ = false;  // the tests may be repeated
    thread_ = std::thread([this, pause = absl::ToChronoNanoseconds(pause)] {
      Watch watch;
      do {
        watch.Look();
        std::this_thread::sleep_for(pause);
      } while (!stop_ || !watch.SawAll());
      watch.End();
    });
  }

  void TearDown() override {
    if (!thread_.joinable()) return;
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

[[maybe_unused]] ::testing::Environment* const watcher =
    ::testing::AddGlobalTestEnvironment(new Watcher);

}  // namespace
}  // namespace gump::testing
