#include "runtime/sys/print.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/diag/panic.h"

namespace gump::rt {

namespace {

constexpr char kDigits[] = "0123456789abcdef";

void putUnsigned(Writer* w, uint64_t v, uint32_t base) {
  char text[20];  // 2^64 has 20 decimal digits
  size_t at = sizeof(text);
  do {
    text[--at] = kDigits[v % base];
    v /= base;
  } while (v != 0);
  put(w, text + at, sizeof(text) - at);
}

void putSigned(Writer* w, int64_t v) {
  uint64_t magnitude = static_cast<uint64_t>(v);
  if (v < 0) {
    put(w, "-", 1);
    magnitude = 0 - magnitude;  // also right for the smallest value
  }
  putUnsigned(w, magnitude, 10);
}

void putQuoted(Writer* w, const char* s) {
  put(w, "\"", 1);
  for (; *s != '\0'; s++) {
    auto c = static_cast<unsigned char>(*s);
    if (c < ' ' || c == 0x7f) {
      char hex[4] = {'\\', 'x', kDigits[c >> 4], kDigits[c & 15]};
      put(w, hex, sizeof(hex));
      continue;
    }
    if (c == '"' || c == '\\') put(w, "\\", 1);
    put(w, s, 1);
  }
  put(w, "\"", 1);
}

}  // namespace

void flush(Writer* w) {
  if (w->fd == kNoFd) return;
  size_t done = 0;
  while (done < w->len) {
    ssize_t n = write(w->fd, w->buf + done, w->len - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // there is no other place to report this
    done += static_cast<size_t>(n);
  }
  w->len = 0;
}

void put(Writer* w, const char* s, size_t n) {
  w->total += n;
  while (n > 0) {
    if (w->len == w->cap) flush(w);
    size_t room = w->cap - w->len;
    if (room == 0) return;  // memory only, and full
    size_t part = n < room ? n : room;
    memcpy(w->buf + w->len, s, part);
    w->len += part;
    s += part;
    n -= part;
  }
}

void vprint(Writer* w, const char* format, va_list args) {
  const char* plain = format;
  for (const char* f = format; *f != '\0'; f++) {
    if (*f != '%') continue;
    put(w, plain, static_cast<size_t>(f - plain));
    f++;
    plain = f + 1;
    switch (*f) {
      case 'd':
        putSigned(w, va_arg(args, int32_t));
        break;
      case 'u':
        putUnsigned(w, va_arg(args, uint32_t), 10);
        break;
      case 'x':
        putUnsigned(w, va_arg(args, uint32_t), 16);
        break;
      case 'D':
        putSigned(w, va_arg(args, int64_t));
        break;
      case 'U':
        putUnsigned(w, va_arg(args, uint64_t), 10);
        break;
      case 'X':
        putUnsigned(w, va_arg(args, uint64_t), 16);
        break;
      case 'p':
        put(w, "0x", 2);
        putUnsigned(w, reinterpret_cast<uintptr_t>(va_arg(args, void*)), 16);
        break;
      case 'c': {
        char c = static_cast<char>(va_arg(args, int));
        put(w, &c, 1);
        break;
      }
      case 's': {
        const char* s = va_arg(args, const char*);
        if (s == nullptr) s = "nil";
        put(w, s, strlen(s));
        break;
      }
      case 'Q':
        putQuoted(w, va_arg(args, const char*));
        break;
      case '%':
        put(w, "%", 1);
        break;
      case '\0':
        return;  // a lone % at the end
      default:
        plain = f - 1;
        break;  // unknown: printed as it stands
    }
  }
  put(w, plain, strlen(plain));
}

void print(Writer* w, const char* format, ...) {
  va_list args;
  va_start(args, format);
  vprint(w, format, args);
  va_end(args);
}

void printf(const char* format, ...) {
  int savedErrno = errno;
  char buf[512];
  Writer w{.buf = buf, .cap = sizeof(buf), .fd = kStderr};
  va_list args;
  va_start(args, format);
  vprint(&w, format, args);
  va_end(args);
  flush(&w);
  errno = savedErrno;
}

}  // namespace gump::rt
