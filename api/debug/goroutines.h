// The page /debug/goroutines: goroutines as text and as JSON.
#ifndef API_DEBUG_GOROUTINES_H_
#define API_DEBUG_GOROUTINES_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace gump::internal {

// GoroutineQuery says which goroutines to show. An empty text selects all.
struct GoroutineQuery {
  std::string state;  // a state, or a reason to wait
  // The name of a Group selects its goroutines. "state", "where" or "maker"
  // counts goroutines by that, as `info goroutines -group` does in gdb.
  std::string group;
};

// GoroutineList is the goroutines that a query selects, as they are at one
// moment.
class GoroutineList {
 public:
  // Write gets a part of a text. Returns false if it takes no more.
  using Write = absl::FunctionRef<bool(std::string_view part)>;

  // The constructor stops the world. It throws std::bad_alloc if there is no
  // memory. Parks.
  explicit GoroutineList(const GoroutineQuery& query);
  GoroutineList(GoroutineList&&) noexcept;
  ~GoroutineList();

  // WriteText puts goroutines with the same state and stack together, the
  // largest set first. WriteJson writes what GoroutinesJSON returns, of these
  // goroutines. Neither has the whole text in memory. They return false if
  // write has. They park if write does, and throw std::bad_alloc.
  [[nodiscard]] bool WriteText(Write write) const;
  [[nodiscard]] bool WriteJson(Write write) const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace gump::internal

#endif  // API_DEBUG_GOROUTINES_H_
