// The page /debug/goroutines: goroutines as text and as JSON.
#ifndef API_DEBUG_GOROUTINES_H_
#define API_DEBUG_GOROUTINES_H_

#include <string>
#include <string_view>

namespace gump::internal {

// GoroutineQuery says which goroutines to show. An empty text selects all.
struct GoroutineQuery {
  std::string_view state;  // a state, or a reason to wait
  // The name of a Group selects its goroutines. "state", "where" or "maker"
  // counts goroutines by that, as `info goroutines -group` does in gdb.
  std::string_view group;
};

// GoroutinesText puts goroutines with the same state and stack together, the
// largest set first. GoroutinesJson is GoroutinesJSON of the goroutines that
// the query selects. Both stop the world, park, and throw std::bad_alloc if
// there is no memory.
[[nodiscard]] std::string GoroutinesText(const GoroutineQuery& query);
[[nodiscard]] std::string GoroutinesJson(const GoroutineQuery& query);

}  // namespace gump::internal

#endif  // API_DEBUG_GOROUTINES_H_
