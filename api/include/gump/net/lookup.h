// LookupHost and ResolveAddr find the addresses of a name.
//
//   absl::StatusOr<std::vector<std::string>> hosts =
//       net::LookupHost(ctx, "localhost");  // "::1", "127.0.0.1"
//
// For each lookup, a goroutine of the library asks the system's resolver
// (getaddrinfo). At most 128 lookups run at the same time, and further ones
// wait. Functions may be called from goroutines and from plain threads. They
// park while a name is looked up, and stall no other goroutine. gump/net.h
// describes the errors.
#ifndef GUMP_NET_LOOKUP_H_
#define GUMP_NET_LOOKUP_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gump/context.h"
#include "gump/net/addr.h"

#pragma GCC visibility push(default)

namespace gump::internal {
// LookupHost calls take(to, address) for each address. No std::vector is passed
// to the library or from it, because with -D_GLIBCXX_DEBUG the program has
// another std::vector.
absl::Status LookupHost(const context::Context& ctx, std::string_view name,
                        void (*take)(void* to, std::string address), void* to);
}  // namespace gump::internal

namespace gump::net {

// LookupHost returns the addresses of a name, without ports, in the order in
// which they should be tried. Parks while it looks up the name. Fails with
// NotFound "lookup x: no such host", and as DialContext does if ctx is done.
inline absl::StatusOr<std::vector<std::string>> LookupHost(
    const context::Context& ctx, std::string_view name) {
  using Addresses = std::vector<std::string>;
  Addresses found;
  const absl::Status status = internal::LookupHost(
      ctx, name,
      [](void* to, std::string address) {
        static_cast<Addresses*>(to)->push_back(std::move(address));
      },
      &found);
  if (!status.ok()) return status;
  return found;
}
// ResolveAddr returns the first address of a name as an Addr, such as WriteTo
// needs. Parks while it looks up the name. Fails as LookupHost does.
absl::StatusOr<Addr> ResolveAddr(const context::Context& ctx,
                                 std::string_view network,
                                 std::string_view address);

}  // namespace gump::net

#pragma GCC visibility pop

#endif  // GUMP_NET_LOOKUP_H_
