// The encoding of profiles: profile.proto of google/pprof, in a gzip file.
#ifndef API_PPROF_PROTO_H_
#define API_PPROF_PROTO_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "gump/internal/linkname_pprof.h"

namespace gump::internal {

// Mapping is a part of a file that is mapped into memory.
struct Mapping {
  uint64_t start = 0;
  uint64_t limit = 0;
  uint64_t offset = 0;
  std::string file;
  std::string build_id;  // in hexadecimal digits, or empty
};

// Mappings returns the executable mappings of the process, in the order of
// their addresses. It reads /proc/self/maps; without that it returns none.
[[nodiscard]] std::vector<Mapping> Mappings();
// ParseMaps reads text in the form of /proc/PID/maps. It leaves out lines that
// it does not understand.
[[nodiscard]] std::vector<Mapping> ParseMaps(std::string_view text);

// FunctionName is the name of the function around pc, or "?".
[[nodiscard]] std::string FunctionName(uintptr_t pc);

// Gzip puts data into a gzip file (RFC 1952) of stored blocks.
[[nodiscard]] std::string Gzip(std::string_view data);

// ProfileBuilder makes one profile. Functions throw std::bad_alloc.
class ProfileBuilder {
 public:
  // A sample type: what a value counts, and its unit.
  struct ValueType {
    std::string_view type;
    std::string_view unit;
  };

  // The types of the values of each sample; the type and length of a period.
  ProfileBuilder(absl::Span<const ValueType> types, ValueType period_type,
                 int64_t period, std::vector<Mapping> mappings);

  // Add adds a sample with one value for each type.
  void Add(const rt::StackRecord& stack, absl::Span<const int64_t> values);
  // Build returns the profile as a message, without gzip. It was taken at
  // time_nanos (Unix time), or began then and took duration_nanos.
  [[nodiscard]] std::string Build(int64_t time_nanos,
                                  int64_t duration_nanos = 0) &&;

 private:
  uint64_t StringIndex(std::string_view s);
  uint64_t LocationOf(uintptr_t pc);
  uint64_t FunctionOf(uintptr_t pc, const Mapping* mapping);

  std::string out_;
  absl::flat_hash_map<std::string, uint64_t> strings_;
  std::vector<std::string> table_;
  absl::flat_hash_map<uintptr_t, uint64_t> locations_;
  absl::flat_hash_map<std::string, uint64_t> functions_;
  std::vector<Mapping> mappings_;
};

}  // namespace gump::internal

#endif  // API_PPROF_PROTO_H_
