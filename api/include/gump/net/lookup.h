// net lookup
#ifndef GUMP_NET_LOOKUP_H_
#define GUMP_NET_LOOKUP_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "gump/context.h"
#include "gump/net/addr.h"

namespace gump::net {

// LookupHost returns the addresses of a name, without ports, in the order in
// which they should be tried. Parks while it looks up the name, and stalls no
// other goroutine. Fails with NotFound "lookup x: no such host", and as
// DialContext does if ctx is done.
absl::StatusOr<std::vector<std::string>> LookupHost(const context::Context& ctx,
                                                    std::string_view name);
// ResolveAddr returns the first address of a name as an Addr, such as WriteTo
// needs. Parks while a name is looked up.
absl::StatusOr<Addr> ResolveAddr(const context::Context& ctx,
                                 std::string_view network,
                                 std::string_view address);

}  // namespace gump::net

#endif  // GUMP_NET_LOOKUP_H_
