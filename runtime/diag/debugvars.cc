// Tuning variables: GODEBUG and GUMP_DEBUG.
//
// The environment is read in place, because getenv(3) may be interposed and
// nothing here may allocate. Unknown keys and values that are not numbers are
// ignored, as in Go: a variable set for another program must not stop this one.
#include "runtime/diag/debugvars.h"

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "runtime/sched/runtime2.h"

namespace gump::rt {

DebugVars debug;

namespace {

// lookup returns the value of name in the environment, or nullptr.
const char* lookup(const char* name) {
  if (environ == nullptr) return nullptr;
  const size_t n = strlen(name);
  for (char** e = environ; *e != nullptr; e++) {
    if (strncmp(*e, name, n) == 0 && (*e)[n] == '=') return *e + n + 1;
  }
  return nullptr;
}

// parseInt32 reads a whole string as a decimal number, as Go's atoi does.
// Returns false if it is not one.
bool parseInt32(std::string_view s, int32_t* out) {
  const bool negative = !s.empty() && s.front() == '-';
  if (negative) s.remove_prefix(1);
  if (s.empty()) return false;
  int64_t v = 0;
  for (const char c : s) {
    if (c < '0' || c > '9') return false;
    v = v * 10 + (c - '0');
    if (v > int64_t{INT32_MAX} + (negative ? 1 : 0)) return false;
  }
  *out = static_cast<int32_t>(negative ? -v : v);
  return true;
}

struct IntKey {
  std::string_view name;
  int32_t DebugVars::*field;
};

constexpr IntKey kIntKeys[] = {
    {"schedtrace", &DebugVars::schedtrace},
    {"scheddetail", &DebugVars::scheddetail},
    {"asyncpreemptoff", &DebugVars::asyncpreemptoff},
    {"dontfreezetheworld", &DebugVars::dontfreezetheworld},
    {"tracebackancestors", &DebugVars::tracebackancestors},
    {"tracebacklabels", &DebugVars::tracebacklabels},
    {"containermaxprocs", &DebugVars::containermaxprocs},
    {"updatemaxprocs", &DebugVars::updatemaxprocs},
    {"fuzzsched", &DebugVars::fuzzsched},
    {"watchdog", &DebugVars::watchdog},
    {"parklocks", &DebugVars::parklocks},
    {"hooks", &DebugVars::hooks},
    {"scopes", &DebugVars::scopes},
    {"hibernate", &DebugVars::hibernate},
};

void setKey(std::string_view key, std::string_view value) {
  if (key == "stackguard") {
    if (value == "strict") debug.stackguardStrict = 1;
    if (value == "best") debug.stackguardStrict = 0;
    return;
  }
  if (key == "netpoll") {
    if (value == "auto") debug.netpoll = NetpollChoice::kAuto;
    if (value == "epoll") debug.netpoll = NetpollChoice::kEpoll;
    if (value == "uring") debug.netpoll = NetpollChoice::kUring;
    return;
  }
  int32_t n;
  if (!parseInt32(value, &n)) return;
  for (const IntKey& k : kIntKeys) {
    if (key == k.name) debug.*k.field = n;
  }
}

// parseList reads "key=value,key=value". If a key comes twice, its last value
// counts.
void parseList(std::string_view list) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(item.size() < list.size() ? item.size() + 1
                                                 : list.size());
    const size_t eq = item.find('=');
    if (eq != std::string_view::npos) {
      setKey(item.substr(0, eq), item.substr(eq + 1));
    }
  }
}

}  // namespace

const char* gogetenv(const char* goName, const char* gumpName) {
  const char* v = lookup(gumpName);
  return v != nullptr ? v : lookup(goName);
}

// Key by key, GUMP_DEBUG wins over GODEBUG.
void parsedebugvars() {
  debug = DebugVars{};
  for (const char* name : {"GODEBUG", "GUMP_DEBUG"}) {
    const char* list = lookup(name);
    if (list != nullptr) parseList(list);
  }
}

int32_t parseGOMAXPROCS(const char* value) {
  const std::string_view s = value == nullptr ? "" : value;
  int32_t n;
  if (parseInt32(s, &n)) {
    return n <= 0 ? 0 : n < kMaxGomaxprocs ? n : kMaxGomaxprocs;
  }
  // A number too large for the type still asks for as many Ps as there can be.
  const bool digits = s.find_first_not_of("0123456789") == s.npos;
  return !s.empty() && digits ? kMaxGomaxprocs : 0;
}

}  // namespace gump::rt
