// The scheduler's interface to the monitor: its entry point. The scheduler
// wakes sysmon through data, sched.sysmonnote and sched.sysmonWakeNow.
#ifndef RUNTIME_SCHED_SYSMON_H_
#define RUNTIME_SCHED_SYSMON_H_

namespace gump::rt {

// sysmon is an M's entry point. It never returns, and runs without a P. Defined
// in sysmon/sysmon.cc.
void sysmon();

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_SYSMON_H_
