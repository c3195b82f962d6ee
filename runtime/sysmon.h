// What the scheduler needs of the monitor: its entry point. Waking it is data,
// not a call: sched.sysmonnote.
#ifndef RUNTIME_SYSMON_H_
#define RUNTIME_SYSMON_H_

namespace gump::rt {

// sysmon is an M's entry point: never returns, runs without a P. Defined in
// sysmon/sysmon.cc.
void sysmon();

}  // namespace gump::rt

#endif  // RUNTIME_SYSMON_H_
