// Profiles as texts in memory, for pages that serve them (api/debug).
#ifndef API_PPROF_PROFILE_H_
#define API_PPROF_PROFILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gump::internal {

// ProfileNames returns the names of the profiles of WriteProfile, sorted.
[[nodiscard]] std::vector<std::string_view> ProfileNames();
// ProfileCount returns about how many entries a profile has: goroutines,
// threads, or different stacks. It does not stop the world. It is 0 for an
// unknown name.
[[nodiscard]] int64_t ProfileCount(std::string_view name);
// ProfileText returns what WriteProfile writes, or its error.
[[nodiscard]] absl::StatusOr<std::string> ProfileText(std::string_view name,
                                                      int debug);

// ProfileDelta is the difference between a profile at two moments.
class ProfileDelta {
 public:
  // Begin takes the profile at the first moment. Fails as ProfileText does.
  [[nodiscard]] static absl::StatusOr<ProfileDelta> Begin(
      std::string_view name);
  ProfileDelta(ProfileDelta&&) noexcept;
  ~ProfileDelta();
  // End takes the profile again, and returns the difference, in the form of
  // WriteProfile with debug 0. Fails as ProfileText does.
  [[nodiscard]] absl::StatusOr<std::string> End() const;

 private:
  struct State;
  explicit ProfileDelta(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace gump::internal

#endif  // API_PPROF_PROFILE_H_
