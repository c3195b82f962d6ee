// The tuning variables GODEBUG and GUMP_DEBUG, and the environment.
#ifndef RUNTIME_DIAG_DEBUGVARS_H_
#define RUNTIME_DIAG_DEBUGVARS_H_

#include <cstdint>

namespace gump::rt {

// NetpollChoice is GODEBUG=netpoll: the mechanism for sockets and files.
enum class NetpollChoice : uint8_t {
  kAuto,   // whichever measures faster: epoll, and for files io_uring
  kEpoll,  // no io_uring at all
  kUring,  // io_uring for everything, if the kernel allows it
};

// DebugVars holds the settings of GODEBUG and GUMP_DEBUG. Written at start-up
// only.
struct DebugVars {
  int32_t schedtrace = 0;  // ms
  int32_t scheddetail = 0;
  int32_t asyncpreemptoff = 0;
  int32_t dontfreezetheworld = 0;
  int32_t tracebackancestors = 0;
  int32_t tracebacklabels = 1;
  int32_t containermaxprocs = 1;
  int32_t updatemaxprocs = 1;
  int32_t stackguardStrict = 0;  // stackguard=strict
  NetpollChoice netpoll = NetpollChoice::kAuto;
  int32_t fuzzsched = 0;  // the seed; see fuzzsched.h
  int32_t watchdog = 0;   // 1: report, 2: die; see sysmon.cc
  int32_t parklocks = 0;  // 1: see parklocks.h
  int32_t hibernate = 0;  // seconds; see hibernate.cc
  int32_t hooks = 1;      // 0: hooks::Scope does nothing
  int32_t scopes = 0;     // dumps of all goroutines end in scopetree.h's tree
};
extern DebugVars debug;
// parsedebugvars reads GODEBUG and GUMP_DEBUG, once. Called by schedinit.
// On: a thread of the user's.  P: none.  Locks: none.  Parks: no.
void parsedebugvars();
// gogetenv returns the value of gumpName, or of goName if gumpName is not set.
// Returns nullptr if neither is set.
// On: any.  P: either.  Locks: none.  Parks: no.
const char* gogetenv(const char* goName, const char* gumpName);
// parseGOMAXPROCS reads a value of the variable. A value above kMaxGomaxprocs
// counts as kMaxGomaxprocs. Returns 0 for nullptr, or for a value that is no
// positive number.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] int32_t parseGOMAXPROCS(const char* value);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_DEBUGVARS_H_
