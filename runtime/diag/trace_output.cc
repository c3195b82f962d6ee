#include "runtime/diag/trace_output.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "runtime/sys/os_linux.h"

namespace gump::rt {

namespace {

// writeAll writes n bytes. Returns 0, or the error of the write that failed. A
// pipe without a reader sends no SIGPIPE.
// On: user, or a foreign thread, in a declared call.  Parks: no.
int writeAll(int fd, const void* bytes, size_t n) {
  sigset_t pipe, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const auto* p = static_cast<const char*>(bytes);
  int error = 0;
  while (n > 0 && error == 0) {
    const ssize_t w = ::write(fd, p, n);
    if (w > 0) {
      p += w;
      n -= static_cast<size_t>(w);
    } else if (w == 0) {
      error = EIO;  // no file does that
    } else if (errno != EINTR) {
      error = errno;  // the calls below may change it
    }
  }
  if (error == EPIPE && sigismember(&before, SIGPIPE) == 0) {
    const timespec now = {};
    while (sigtimedwait(&pipe, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

constexpr std::string_view kHeader("go 1.23 trace\0\0\0", 16);

// forEachPart calls f(bytes, size) for each part, until it returns false.
template <class F>
bool forEachPart(const TraceOutput& o, F&& f) {
  if (!f(o.head->bytes, o.head->size)) return false;
  for (const TraceBuf* b = o.events; b != nullptr; b = b->next) {
    if (!f(b->bytes, b->pos)) return false;
  }
  return f(o.tail.data(), o.tail.size());
}

}  // namespace

void TraceFile::add(uint64_t gen, const TraceOutput& o) {
  if (!on() || broken || gen < first) return;
  const auto put = [this](const void* p, size_t n) {
    return sink != nullptr ? sink(arg, p, n) : writeAll(fd, p, n) == 0;
  };
  broken = (!std::exchange(headerWritten, true) &&
            !put(kHeader.data(), kHeader.size())) ||
           !forEachPart(o, put) || (sink != nullptr && !sink(arg, nullptr, 0));
}

void TraceFile::close() {
  if (owned) ::close(fd);
  *this = TraceFile();
}

void TraceRecorder::add(const TraceOutput& o) {
  std::string all;
  forEachPart(o, [&all](const void* p, size_t n) {
    all.append(static_cast<const char*>(p), n);
    return true;
  });
  const int64_t now = nanotime();
  auto* g = new Generation{nullptr, now, std::move(all)};
  bytes += g->bytes.size();
  (oldest == nullptr ? oldest : newest->next) = g;
  newest = g;
  while (oldest != newest && (bytes > maxBytes || now - oldest->end > minAge)) {
    drop();
  }
}

void TraceRecorder::drop() {
  Generation* g = oldest;
  oldest = g->next;
  bytes -= g->bytes.size();
  delete g;
}

void TraceRecorder::clear() {
  while (oldest != nullptr) drop();
}

int64_t TraceRecorder::write(int fd) const {
  auto n = static_cast<int64_t>(kHeader.size());
  int error = writeAll(fd, kHeader.data(), kHeader.size());
  if (error != 0) return -error;
  for (const auto* g = oldest; g != nullptr; g = g->next) {
    error = writeAll(fd, g->bytes.data(), g->bytes.size());
    if (error != 0) return -error;
    n += static_cast<int64_t>(g->bytes.size());
  }
  return n;
}

}  // namespace gump::rt
