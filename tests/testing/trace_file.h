// Helpers of tests that write execution traces to a file, and read them by the
// rules of Go's reader (tools/trace/order.h).
#ifndef TESTS_TESTING_TRACE_FILE_H_
#define TESTS_TESTING_TRACE_FILE_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gump/gump.h"
#include "tools/trace/event_reader.h"
#include "tools/trace/reader.h"

namespace gump::testing {

// A file that goes away with the test.
class TempFile {
 public:
  TempFile() {
    std::string name = ::testing::TempDir() + "/trace.XXXXXX";
    fd_ = ::mkstemp(name.data());
    EXPECT_GE(fd_, 0);
    path_ = name;
  }
  ~TempFile() {
    ::close(fd_);
    ::unlink(path_.c_str());
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  std::string Contents() const {
    std::string all;
    char buf[65'536];
    off_t at = 0;
    for (ssize_t n; (n = ::pread(fd_, buf, sizeof(buf), at)) > 0; at += n) {
      all.append(buf, static_cast<size_t>(n));
    }
    return all;
  }

 private:
  int fd_ = -1;
  std::string path_;
};

// A CPU sample.
struct TracedSample {
  uint64_t generation = 0;
  uint64_t g = 0;                      // kNoId: no goroutine
  uint64_t p = 0;                      // kNoId: none
  std::vector<std::string> functions;  // innermost first

  bool Has(const std::string& function) const {
    return std::find(functions.begin(), functions.end(), function) !=
           functions.end();
  }
};

// What a trace contains.
struct Traced {
  uint64_t generations = 0;
  std::map<trace_tool::Ev, uint64_t> count;
  std::set<std::string> reasons;  // of GoBlock
  std::set<std::string> names;    // of tasks, regions and messages
  std::set<std::string> functions;
  // How often a goroutine stopped while this function ran.
  std::map<std::string, uint64_t> stops;
  std::vector<TracedSample> samples;

  // In returns how many samples have this function in their stack.
  size_t In(const std::string& function) const {
    return static_cast<size_t>(
        std::count_if(samples.begin(), samples.end(),
                      [&](const TracedSample& s) { return s.Has(function); }));
  }
};

// Whether the process has died while it wrote the trace.
enum class Cut : bool { kNo, kMaybe };

// ReadSamples adds the samples of a generation to t. It fails the test if the
// library cannot have written them. last_sample has the time of the last sample
// of each thread in the generations before.
inline void ReadSamples(const trace_tool::Generation& g,
                        std::map<uint64_t, uint64_t>* last_sample, Traced* t) {
  std::map<uint64_t, uint64_t> last;
  for (const trace_tool::CpuSample& s : g.samples) {
    EXPECT_NE(s.m, trace_tool::kNoId);
    // No thread writes to a generation after it has written to a later one.
    EXPECT_GT(s.ns, (*last_sample)[s.m]) << "generation " << g.number;
    last[s.m] = std::max(last[s.m], s.ns);
    TracedSample sample{g.number, s.g, s.p, {}};
    const auto stack = g.stacks.find(s.stack);
    EXPECT_TRUE(stack != g.stacks.end() && !stack->second.empty());
    if (stack == g.stacks.end()) continue;
    for (const trace_tool::Frame& f : stack->second) {
      sample.functions.emplace_back(g.String(f.function).value_or("?"));
    }
    t->samples.push_back(std::move(sample));
  }
  for (const auto& [m, ns] : last) (*last_sample)[m] = ns;
}

// ReadTrace fails the test if the trace breaks a rule.
inline Traced ReadTrace(const std::string& bytes, Cut cut = Cut::kNo) {
  Traced t;
  absl::StatusOr<trace_tool::EventReader> reader =
      trace_tool::EventReader::Open(bytes);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return t;
  std::map<uint64_t, uint64_t> last_sample;
  while (reader->Next()) {
    const trace_tool::Generation& g = reader->generation();
    t.generations++;
    const auto text = [&g](uint64_t id) {
      return std::string(g.String(id).value_or("?"));
    };
    reader->ForEachEvent([&](const trace_tool::Event& e) {
      t.count[e.type]++;
      switch (e.type) {
        case trace_tool::Ev::kGoBlock:
          t.reasons.insert(text(e.args[0]));
          break;
        case trace_tool::Ev::kGoStop:
          if (const auto at = g.stacks.find(e.args[1]); at != g.stacks.end()) {
            for (const trace_tool::Frame& f : at->second) {
              t.stops[text(f.function)]++;
            }
          }
          break;
        case trace_tool::Ev::kUserTaskBegin:
          t.names.insert("task " + text(e.args[2]));
          break;
        case trace_tool::Ev::kUserRegionBegin:
          t.names.insert("region " + text(e.args[1]));
          break;
        case trace_tool::Ev::kUserLog:
          t.names.insert(text(e.args[1]) + ": " + text(e.args[2]));
          break;
        default:
          break;
      }
    });
    ReadSamples(g, &last_sample, &t);
    for (const auto& [id, frames] : g.stacks) {
      for (const trace_tool::Frame& f : frames) {
        t.functions.insert(text(f.function));
      }
    }
  }
  if (cut == Cut::kNo || !reader->cut_off()) {
    EXPECT_TRUE(reader->status().ok()) << reader->status();
  }
  return t;
}

__attribute__((noinline)) inline void Serve(chan<int> requests,
                                            chan<int> answers) {
  while (const std::optional<int> r = requests.Recv()) answers.Send(*r + 1);
  asm volatile("");
}

// Work makes goroutines that wait for channels, sleep, and call the kernel.
inline void Work() {
  chan<int> requests = make_chan<int>();
  chan<int> answers = make_chan<int>();
  sync::WaitGroup wg;
  wg.Go([=] { Serve(requests, answers); });
  for (int i = 0; i < 100; i++) {
    requests.Send(i);
    (void)answers.Recv();
  }
  requests.Close();
  for (int i = 0; i < 4; i++) wg.Go([] { time::Sleep(absl::Milliseconds(1)); });
  wg.Go([] { blocking([] { ::usleep(1000); }); });
  wg.Go([] { ::usleep(1000); });
  wg.Wait();
}

}  // namespace gump::testing

#endif  // TESTS_TESTING_TRACE_FILE_H_
