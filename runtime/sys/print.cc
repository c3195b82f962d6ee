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

// putEscape prints a backslash, the letter and v in so many hexadecimal digits.
void putEscape(Writer* w, char letter, uint32_t v, int digits) {
  const char head[2] = {'\\', letter};
  put(w, head, sizeof(head));
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    put(w, &kDigits[(v >> shift) & 15], 1);
  }
}

// decodeRune reads the character at s, which is not the end of the string.
// Returns its length in bytes, or 0 if the bytes are not UTF-8: truncated, too
// long a form, a surrogate, or above U+10FFFF.
size_t decodeRune(const char* s, uint32_t* rune) {
  const auto byte = [s](size_t i) { return static_cast<unsigned char>(s[i]); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) {
    *rune = lead;
    return 1;
  }
  const size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc0 || lead >= 0xf8) return 0;
  uint32_t v = lead & (0x7fU >> n);
  for (size_t i = 1; i < n; i++) {  // the final NUL ends it, too
    if ((byte(i) & 0xc0) != 0x80) return 0;
    v = v << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0x80, 0x800, 0x10000};
  if (v < kLeast[n - 2] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000)) {
    return 0;
  }
  *rune = v;
  return n;
}

void putQuoted(Writer* w, const char* s) {
  put(w, "\"", 1);
  while (*s != '\0') {
    uint32_t rune = 0;
    const size_t n = decodeRune(s, &rune);
    if (n == 0) {
      putEscape(w, 'x', static_cast<unsigned char>(*s), 2);
      s++;
      continue;
    }
    s += n;
    constexpr char kNamed[] = "\n\r\t\\\"";
    constexpr char kNames[] = "nrt\\\"";
    const char c = static_cast<char>(rune);
    const char* named = n == 1 ? strchr(kNamed, c) : nullptr;
    if (named != nullptr) {
      const char escape[2] = {'\\', kNames[named - kNamed]};
      put(w, escape, sizeof(escape));
    } else if (rune >= ' ' && rune <= '~') {
      put(w, &c, 1);
    } else if (rune < 0x7f) {
      putEscape(w, 'x', rune, 2);
    } else {
      const bool wide = rune > 0xffff;
      putEscape(w, wide ? 'U' : 'u', rune, wide ? 8 : 4);
    }
  }
  put(w, "\"", 1);
}

}  // namespace

void flush(Writer* w) {
  if (w->sink != nullptr) {
    if (!w->refused) w->refused = !w->sink(w->arg, w->buf, w->len);
    w->len = 0;
    return;
  }
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

namespace {
// makeRoom makes room in a full buffer for at least one of n bytes. Returns
// false if it cannot. After a refusal the buffer stays as it is, so that later
// bytes do not follow a hole.
bool makeRoom(Writer* w, size_t n) {
  flush(w);
  if (w->grow != nullptr) {
    size_t size = w->len + n;
    if (char* buf = w->grow(w->arg, &size)) {
      w->buf = buf;
      w->cap = size;
    } else {
      w->grow = nullptr;
    }
  }
  return w->len < w->cap;
}
}  // namespace

void put(Writer* w, const char* s, size_t n) {
  w->total += n;
  while (n > 0) {
    if (w->len == w->cap && !makeRoom(w, n)) return;
    size_t room = w->cap - w->len;
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
