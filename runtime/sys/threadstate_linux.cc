// The state of another thread, read from /proc/self/task/TID/status.
#include "runtime/sys/threadstate_linux.h"

#include <cstring>

#include "runtime/sys/os_linux.h"
#include "runtime/sys/print.h"

namespace gump::rt {

namespace {

// fieldOf returns the value of the field `name` in text, which has one field a
// line ("name:\tvalue"). Returns nullptr if there is no such field.
const char* fieldOf(const char* text, const char* name) {
  const size_t n = strlen(name);
  for (const char* line = text; line != nullptr;) {
    if (strncmp(line, name, n) == 0 && line[n] == ':') return line + n + 2;
    line = strchr(line, '\n');
    if (line != nullptr) line++;
  }
  return nullptr;
}

}  // namespace

ThreadState threadState(int32_t tid, uint64_t* sleeps) {
  char path[64];
  Writer w{.buf = path, .cap = sizeof(path) - 1, .fd = kNoFd};
  print(&w, "/proc/self/task/%d/status", tid);
  path[w.len] = '\0';
  char text[4096];
  const int64_t n = readFile(path, text, sizeof(text) - 1);
  if (n <= 0) return ThreadState::kUnseen;
  text[n] = '\0';
  const char* state = fieldOf(text, "State");
  const char* count = fieldOf(text, "voluntary_ctxt_switches");
  if (state == nullptr || count == nullptr) return ThreadState::kUnknown;
  *sleeps = 0;
  for (; *count >= '0' && *count <= '9'; count++) {
    *sleeps = 10 * *sleeps + static_cast<uint64_t>(*count - '0');
  }
  switch (*state) {
    case 'S':
    case 'D':
      return ThreadState::kAsleep;
    case 'R':
      return ThreadState::kRunning;
    default:
      return ThreadState::kUnknown;  // stopped, traced or dying
  }
}

}  // namespace gump::rt
