// Lists of buffers (iovec) of which a part has been dealt with.
#ifndef API_HOOKS_PARTS_H_
#define API_HOOKS_PARTS_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <vector>

namespace gump::hooks {

// SizeOf returns how many bytes the n buffers have.
inline size_t SizeOf(const iovec* v, size_t n) {
  size_t size = 0;
  for (size_t i = 0; i < n; i++) size += v[i].iov_len;
  return size;
}

// Without returns the n buffers without their first `done` bytes.
inline std::vector<iovec> Without(const iovec* v, size_t n, size_t done) {
  size_t i = 0;
  while (i < n && done >= v[i].iov_len) done -= v[i++].iov_len;
  std::vector<iovec> rest(v + i, v + n);
  if (!rest.empty()) {
    rest[0].iov_base = static_cast<char*>(rest[0].iov_base) + done;
    rest[0].iov_len -= done;
  }
  return rest;
}

// MessageOf returns a message that consists of the n buffers.
inline msghdr MessageOf(const iovec* v, size_t n) {
  msghdr m{};
  m.msg_iov = const_cast<iovec*>(v);
  m.msg_iovlen = n;
  return m;
}

}  // namespace gump::hooks

#endif  // API_HOOKS_PARTS_H_
