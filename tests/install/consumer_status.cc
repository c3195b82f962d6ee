// gump/status.h: what an error carries.
#include <gump/os.h>
#include <gump/status.h>

#include <cerrno>

int main() {
  const absl::Status s = gump::os::Open("/no/such/file").status();
  return gump::Errno(s) == ENOENT && gump::BytesWritten(s) == 0 ? 0 : 1;
}
