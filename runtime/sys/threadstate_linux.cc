// The state of another thread, read from /proc/self/task/TID/status, and the
// processors that it may use.
#include "runtime/sys/threadstate_linux.h"

#include <sys/syscall.h>

#include <cstring>

#include "runtime/sys/os_linux.h"
#include "runtime/sys/print.h"
#include "runtime/sys/raw_syscall.h"
#include "runtime/sys/topology_linux.h"

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

// numberAt reads the number at s. s moves past it.
uint64_t numberAt(const char*& s) {
  uint64_t n = 0;
  for (; *s >= '0' && *s <= '9'; s++)
    n = 10 * n + static_cast<uint64_t>(*s - '0');
  return n;
}

// hexAt reads the hexadecimal number at s.
uint64_t hexAt(const char* s) {
  uint64_t n = 0;
  for (;; s++) {
    const bool letter = *s >= 'a' && *s <= 'f';
    if (!letter && (*s < '0' || *s > '9')) return n;
    n = 16 * n + static_cast<uint64_t>(letter ? *s - 'a' + 10 : *s - '0');
  }
}

using StatusText = char[4096];

// readStatus reads the status file of a thread. Returns false if the file
// cannot be read, for example because the thread has ended.
bool readStatus(int32_t tid, StatusText* text) {
  char name[32];
  Writer w{.buf = name, .cap = sizeof(name) - 1, .fd = kNoFd};
  print(&w, "%d/status", tid);
  name[w.len] = '\0';
  const int64_t n = readTaskFile(name, *text, sizeof(*text) - 1);
  if (n <= 0) return false;
  (*text)[n] = '\0';
  return true;
}

// isAbout returns true if the text is about the thread tid, or does not tell.
// NSpid has the thread's number in each PID namespace, our own last.
bool isAbout(const char* text, int32_t tid) {
  const char* ids = fieldOf(text, "NSpid");
  if (ids == nullptr) return true;
  uint64_t last = numberAt(ids);
  while (*ids == '\t') last = numberAt(++ids);
  return last == static_cast<uint64_t>(tid);
}

}  // namespace

ThreadState parseThreadStatus(const char* text, int32_t tid, uint64_t* sleeps) {
  const char* state = fieldOf(text, "State");
  const char* count = fieldOf(text, "voluntary_ctxt_switches");
  if (state == nullptr || !isAbout(text, tid)) return ThreadState::kUnseen;
  *sleeps = count == nullptr ? 0 : numberAt(count);
  switch (*state) {
    case 'S':
    case 'D':
      return ThreadState::kAsleep;
    case 'R':
      return count == nullptr ? ThreadState::kUnseen : ThreadState::kRunning;
    default:
      return ThreadState::kUnknown;  // stopped, traced or dying
  }
}

ThreadState threadState(int32_t tid, uint64_t* sleeps) {
  StatusText text;
  if (!readStatus(tid, &text)) return ThreadState::kUnseen;
  return parseThreadStatus(text, tid, sleeps);
}

Pending isPending(int32_t tid, int sig) {
  StatusText text;
  if (!readStatus(tid, &text) || !isAbout(text, tid)) return Pending::kUnknown;
  const char* own = fieldOf(text, "SigPnd");
  const char* shared = fieldOf(text, "ShdPnd");
  if (own == nullptr || shared == nullptr) return Pending::kUnknown;
  const uint64_t all = hexAt(own) | hexAt(shared);
  return (all >> (sig - 1) & 1) != 0 ? Pending::kYes : Pending::kNo;
}

bool isConfinedHere(int32_t tid) {
  CpuSet mask;
  uint32_t here = 0;
  if (!threadAffinity(tid, &mask) ||
      rawSyscall(SYS_getcpu, asArg(&here), 0, 0, 0, 0, 0) < 0) {
    return false;
  }
  return here < uint32_t{kMaxProcessors} && mask.count() == 1 &&
         mask.has(static_cast<int32_t>(here));
}

}  // namespace gump::rt
