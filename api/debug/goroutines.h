// The page /debug/goroutines: goroutines as text and as JSON.
#ifndef API_DEBUG_GOROUTINES_H_
#define API_DEBUG_GOROUTINES_H_

#include <string>
#include <string_view>

namespace gump::internal {

// GoroutineQuery says which goroutines to show. An empty text selects all.
struct GoroutineQuery {
  std::string_view state;  // a state, or a reason to wait
  // The name of a Group; or state, where or maker: count the goroutines by
  // that. (These are the ways to group of `info goroutines -group` in gdb.)
  std::string_view group;
};

// GoroutinesText puts goroutines with the same state and stack together, the
// most frequent first. GoroutinesJson is GoroutinesJSON of those that the query
// selects. Both throw std::bad_alloc.
[[nodiscard]] std::string GoroutinesText(const GoroutineQuery& query);
[[nodiscard]] std::string GoroutinesJson(const GoroutineQuery& query);

}  // namespace gump::internal

#endif  // API_DEBUG_GOROUTINES_H_
