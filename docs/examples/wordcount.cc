// Counts the words under some directories.
//
// * One goroutine per directory finds the files.
// * A pool of tokenisers reads them (os::ReadFile).
// * main receives the results with select and merges them.
//
// At the end the program counts again, plainly, on one thread, and compares.
//
//   wordcount [DIRECTORY...]       default: /usr/include /usr/share/doc
//
// Symbolic links are not followed, because the walk would never end if a link
// led to a directory above it. Files and directories that cannot be read are
// skipped. The program counts the links and the skipped entries.
//
// The exit code is 0 if the two counts agree, 1 if they do not, and 2 if a path
// is not a directory. GODEBUG=schedtrace=100 prints the state of the scheduler
// ten times a second.
#include <gump/gump.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

using namespace gump;
namespace fs = std::filesystem;

namespace {

constexpr int kTokenisersPerCpu = 2;     // some wait for the disk
constexpr size_t kOpenDirectories = 64;  // at once; far below `ulimit -n`
constexpr size_t kWordsPerBatch = 50'000;
constexpr size_t kTopWords = 10;

using Paths = std::vector<fs::path>;
using Words = absl::flat_hash_map<std::string, int64_t>;
using Clock = std::chrono::steady_clock;

// Counts is the result of one goroutine, or the sum over all.
struct Counts {
  Words words;  // how often each word occurs
  int64_t total = 0;
  int64_t files = 0;
  int64_t bytes = 0;
  int64_t directories = 0;
  int64_t links = 0;       // not followed
  int64_t unreadable = 0;  // skipped

  void Add(Counts other) {
    if (words.size() < other.words.size()) words.swap(other.words);
    for (const auto& [word, n] : other.words) words[word] += n;
    total += other.total;
    files += other.files;
    bytes += other.bytes;
    directories += other.directories;
    links += other.links;
    unreadable += other.unreadable;
  }
  friend bool operator==(const Counts&, const Counts&) = default;
};

// ---- What both counts share ----

// ListDirectory appends the files and directories in path to files and
// directories.
void ListDirectory(const fs::path& path, Paths& files, Paths& directories,
                   Counts& counts) {
  counts.directories++;
  std::error_code error;
  fs::directory_iterator entry(path, error);
  for (; !error && entry != fs::end(entry); entry.increment(error)) {
    std::error_code vanished;
    const fs::file_type type = entry->symlink_status(vanished).type();
    if (type == fs::file_type::symlink) counts.links++;
    if (type == fs::file_type::directory) directories.push_back(entry->path());
    if (type == fs::file_type::regular) files.push_back(entry->path());
  }
  if (error) counts.unreadable++;
}

// ReadPlainly replaces text by the contents of path. Returns false if path
// cannot be read.
bool ReadPlainly(const fs::path& path, std::string& text) {
  text.clear();
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return false;
  text.resize(static_cast<size_t>(std::max<std::streamoff>(in.tellg(), 0)));
  in.seekg(0);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in) text.clear();
  return static_cast<bool>(in);
}

// Tokenise counts the words of text, which are runs of ASCII letters, and
// leaves them in lower case.
void Tokenise(std::string& text, Counts& counts) {
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); i++) {
    const char lower = i < text.size() ? static_cast<char>(text[i] | 0x20) : 0;
    if (lower >= 'a' && lower <= 'z') {
      text[i] = lower;
      continue;
    }
    if (i > start) {
      counts.words[absl::string_view(text.data() + start, i - start)]++;
      counts.total++;
    }
    start = i + 1;
  }
}

void CountFile(bool readable, std::string& text, Counts& counts) {
  (readable ? counts.files : counts.unreadable)++;
  counts.bytes += static_cast<int64_t>(text.size());
  Tokenise(text, counts);
}

Counts CountPlainly(Paths directories) {
  Counts counts;
  Paths files;
  while (!directories.empty()) {
    const fs::path path = std::move(directories.back());
    directories.pop_back();
    ListDirectory(path, files, directories, counts);
  }
  std::string text;
  for (const fs::path& file : files) {
    const bool readable = ReadPlainly(file, text);
    CountFile(readable, text, counts);
  }
  return counts;
}

// ---- The same with goroutines ----

// Pipeline: Walk goroutines ─files─▶ Tokeniser goroutines ─batches─▶ Merge.
struct Pipeline {
  chan<fs::path> files = make_chan<fs::path>(256);
  chan<Counts> batches = make_chan<Counts>();
  chan<int64_t> progress = make_chan<int64_t>(16);  // bytes of a counted file
  chan<void> open_directories = make_chan<void>(kOpenDirectories);  // tickets
  sync::WaitGroup walkers;
  sync::WaitGroup tokenisers;
  std::atomic<int64_t> goroutines{1};  // started so far, main included

  template <class F>
  void Spawn(sync::WaitGroup& stage, F f) {
    goroutines.fetch_add(1, std::memory_order_relaxed);
    stage.Go(std::move(f));
  }
};

void Walk(Pipeline& p, const fs::path& path) {
  Counts counts;
  Paths files;
  Paths directories;
  p.open_directories.Send();
  blocking([&] { ListDirectory(path, files, directories, counts); });
  p.open_directories.Recv();
  for (fs::path& directory : directories) {
    p.Spawn(p.walkers, [&p, d = std::move(directory)] { Walk(p, d); });
  }
  for (fs::path& file : files) p.files.Send(std::move(file));
  p.batches.Send(std::move(counts));
}

void Tokeniser(Pipeline& p) {
  Counts counts;
  for (const fs::path& file : p.files) {
    absl::StatusOr<std::string> text = os::ReadFile(file.native());
    const bool readable = text.ok();
    if (!readable) text = "";
    CountFile(readable, *text, counts);
    p.progress.Send(static_cast<int64_t>(text->size()));
    if (counts.words.size() > kWordsPerBatch) {
      p.batches.Send(std::exchange(counts, {}));
    }
  }
  p.batches.Send(std::move(counts));
}

// ProgressLine updates a line of the terminal, ten times a second.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (terminal_) std::fputs("\r\033[K", stderr);
  }
  void FileDone(int64_t bytes) {
    files_++;
    bytes_ += bytes;
    if (!terminal_ || Clock::now() < next_) return;
    next_ = Clock::now() + std::chrono::milliseconds(100);
    std::fprintf(stderr, "\r%lld files, %lld MB, %d goroutines\033[K",
                 static_cast<long long>(files_),
                 static_cast<long long>(bytes_ / 1'000'000),
                 runtime::NumGoroutine());
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  Clock::time_point next_;
  int64_t files_ = 0;
  int64_t bytes_ = 0;
};

// Merge adds up all batches until both channels are closed. It sets a closed
// channel to nil, which is never ready, so that select waits for the other.
Counts Merge(recv_chan<Counts> batches, recv_chan<int64_t> progress) {
  Counts sum;
  ProgressLine line;
  while (batches || progress) {
    Counts batch;
    int64_t bytes = 0;
    bool ok = false;
    const int from =
        select(Recv(batches, &batch, &ok), Recv(progress, &bytes, &ok));
    if (from == 0) ok ? sum.Add(std::move(batch)) : void(batches = nullptr);
    if (from == 1) ok ? line.FileDone(bytes) : void(progress = nullptr);
  }
  return sum;
}

Counts CountConcurrently(Pipeline& p, const Paths& roots) {
  for (const fs::path& root : roots) {
    p.Spawn(p.walkers, [&p, root] { Walk(p, root); });
  }
  const int tokenisers = kTokenisersPerCpu * runtime::NumCPU();
  for (int i = 0; i < tokenisers; i++) {
    p.Spawn(p.tokenisers, [&p] { Tokeniser(p); });
  }
  sync::WaitGroup closer;
  p.Spawn(closer, [&p] {
    p.walkers.Wait();
    p.files.Close();
    p.tokenisers.Wait();
    p.batches.Close();
    p.progress.Close();
  });
  Counts sum = Merge(p.batches, p.progress);
  closer.Wait();
  return sum;
}

void PrintTopWords(const Words& words) {
  using Entry = std::pair<int64_t, absl::string_view>;
  std::vector<Entry> top;
  for (const auto& [word, n] : words) top.emplace_back(-n, word);
  std::sort(top.begin(), top.end());
  if (top.size() > kTopWords) top.resize(kTopWords);
  for (const auto& [minus_n, word] : top) {
    std::printf("%12lld  %.*s\n", static_cast<long long>(-minus_n),
                static_cast<int>(word.size()), word.data());
  }
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int Main(const Paths& roots) {
  const Clock::time_point start = Clock::now();
  Pipeline pipeline;
  const Counts counts = CountConcurrently(pipeline, roots);
  const double seconds = SecondsSince(start);
  PrintTopWords(counts.words);
  auto print = [](const char* what, int64_t n) {
    std::printf("%-12s %lld\n", what, static_cast<long long>(n));
  };
  print("words:", counts.total);
  print("files:", counts.files);
  print("bytes:", counts.bytes);
  print("directories:", counts.directories);
  print("links:", counts.links);
  print("unreadable:", counts.unreadable);
  print("goroutines:", pipeline.goroutines.load());
  std::printf("elapsed:     %.2f s, %.1f MB/s\n", seconds,
              static_cast<double>(counts.bytes) / 1e6 / seconds);

  const Clock::time_point check_start = Clock::now();
  const bool same = CountPlainly(roots) == counts;
  std::printf("check: %s (one thread, no goroutines: %.2f s)\n",
              same ? "OK" : "MISMATCH", SecondsSince(check_start));
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Paths roots(argv + 1, argv + argc);
  if (roots.empty()) roots = {"/usr/include", "/usr/share/doc"};
  for (const fs::path& root : roots) {
    std::error_code error;
    if (fs::is_directory(root, error)) continue;
    std::fprintf(stderr, "wordcount: %s: %s\n", root.c_str(),
                 error ? error.message().c_str() : "not a directory");
    return 2;
  }
  return Run([&roots] { return Main(roots); });
}
