// Reads profiles in the form of profile.proto, and checks the rules that
// `go tool pprof` checks. Runs that tool where it is installed.
#ifndef TESTS_TESTING_PROFILE_READER_H_
#define TESTS_TESTING_PROFILE_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gump::testing {

// Profile is a profile that has been read. `error` is "" if it keeps all rules.
struct Profile {
  struct Sample {
    std::vector<std::string> stack;  // functions, innermost first
    std::vector<int64_t> values;
    std::map<std::string, std::string> labels;
  };
  struct Mapping {
    uint64_t start = 0, limit = 0, offset = 0;
    std::string file, build_id;
    bool has_functions = false;
  };

  std::string error;
  std::vector<std::string> types;  // "count unit"
  std::string period_type;
  int64_t period = 0;
  int64_t time_nanos = 0;
  int64_t duration_nanos = 0;
  std::vector<Sample> samples;
  std::vector<Mapping> mappings;

  // Sum adds the values number `index` of the samples that have a function
  // whose name contains `function`, and all these labels.
  int64_t Sum(std::string_view function, size_t index = 0,
              const std::map<std::string, std::string>& labels = {}) const {
    int64_t sum = 0;
    for (const Sample& s : samples) {
      bool in = false;
      for (const std::string& f : s.stack) {
        in = in || f.find(function) != std::string::npos;
      }
      for (const auto& [key, value] : labels) {
        const auto at = s.labels.find(key);
        in = in && at != s.labels.end() && at->second == value;
      }
      if (in) sum += s.values.at(index);
    }
    return sum;
  }
};

// ReadProfile reads a gzip file.
Profile ReadProfile(std::string_view file);

// TempFile is an open file that is removed at the end.
class TempFile {
 public:
  TempFile();
  ~TempFile();
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  std::string Read() const;

 private:
  std::string path_;
  int fd_;
};

// GoTool returns Go's command, or "" if there is none.
const std::string& GoTool();
// ByGo returns what `go tool pprof OPTION FILE` prints.
std::string ByGo(const std::string& option, const std::string& path);

}  // namespace gump::testing

#endif  // TESTS_TESTING_PROFILE_READER_H_
