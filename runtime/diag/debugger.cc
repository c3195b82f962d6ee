// The facts are exported as data, so that the script needs no debug
// information.
//
// Each entry is a constant expression, so the table is in the data of the
// library before any code runs, and a debugger can read it in a core of a
// program that died early.
//
// A script of one version may meet a library of another. So the script looks up
// each name, and tells its user which one is missing. If a field changes its
// meaning, it gets a new name here.
#include "runtime/diag/debugger.h"

#include <cstddef>

#include "runtime/sched/group.h"
#include "runtime/sched/home.h"
#include "runtime/sched/labels.h"
#include "runtime/sched/proc.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/waitreason.h"
#include "runtime/wait/chan.h"
#include "runtime/wait/synctest.h"

#define GUMP_FIELD(type, field) \
  { #type "." #field, offsetof(type, field), nullptr }
#define GUMP_VALUE(value) \
  { #value, value, nullptr }
#define GUMP_OBJECT(object) \
  { #object, sizeof(object), &(object) }
#define GUMP_SAVED(reg, offset) \
  { "frame." #reg, offset, nullptr }

#ifdef __aarch64__
#define GUMP_SAVED_FRAME                                             \
  GUMP_SAVED(pc, 8), GUMP_SAVED(x29, 0), GUMP_SAVED(x30, 8),         \
      GUMP_SAVED(x19, 16), GUMP_SAVED(x20, 24), GUMP_SAVED(x21, 32), \
      GUMP_SAVED(x22, 40), GUMP_SAVED(x23, 48), GUMP_SAVED(x24, 56), \
      GUMP_SAVED(x25, 64), GUMP_SAVED(x26, 72), GUMP_SAVED(x27, 80), \
      GUMP_SAVED(x28, 88), {                                         \
    "sizeof frame", 176, nullptr                                     \
  }
#else
#define GUMP_SAVED_FRAME                                             \
  GUMP_SAVED(rip, 56), GUMP_SAVED(rbp, 48), GUMP_SAVED(rbx, 40),     \
      GUMP_SAVED(r12, 32), GUMP_SAVED(r13, 24), GUMP_SAVED(r14, 16), \
      GUMP_SAVED(r15, 8), {                                          \
    "sizeof frame", 64, nullptr                                      \
  }
#endif

// The script itself lies in the program, in a section that only gdb reads and
// that takes no memory. So a core and its program are enough to use it. The
// byte 4 says that a name and the text of a Python script follow.
#ifdef GUMP_GDB_SCRIPT  // only in the build of the library itself
asm(".pushsection .debug_gdb_scripts, \"MS\", %progbits, 1\n"
    ".byte 4\n"
    ".ascii \"gump_gdb.py\\n\"\n"
    ".incbin \"" GUMP_GDB_SCRIPT
    "\"\n"
    ".byte 0\n"
    ".popsection");
#endif

namespace gump::rt {

void keepDebuggerTable() {
  // The empty statement uses the address, so the linker has to keep the table.
  asm volatile("" : : "r"(gump_rt_layout));
}

}  // namespace gump::rt

using namespace gump::rt;  // NOLINT: the names in the table are short

GUMP_LAYOUT_TABLE gump_rt_layout[] = {
    {"version", 1, nullptr},
    // All goroutines: a list of slabs of cells.
    GUMP_OBJECT(gSlabs),
    GUMP_FIELD(GSlab, next),
    GUMP_FIELD(GSlab, used),
    GUMP_FIELD(GSlab, cells),
    {"sizeof G", sizeof(G), nullptr},
    GUMP_FIELD(G, sched.sp),
    GUMP_FIELD(G, sched.fresh),
    GUMP_FIELD(G, m),
    GUMP_FIELD(G, stack.lo),
    GUMP_FIELD(G, stack.hi),
    GUMP_FIELD(G, atomicstatus),
    GUMP_FIELD(G, goid),
    GUMP_FIELD(G, waitreason),
    GUMP_FIELD(G, foreign),
    GUMP_FIELD(G, systemG),
    GUMP_FIELD(G, inPlace),
    GUMP_FIELD(G, onOtherStack),
    GUMP_FIELD(G, fn),
    GUMP_FIELD(G, gopc),
    GUMP_FIELD(G, parentGoid),
    GUMP_FIELD(G, lockedm),
    GUMP_FIELD(G, name),
    GUMP_FIELD(G, labelled),
    GUMP_FIELD(G, gls),
    GUMP_FIELD(LocalNode, key),
    GUMP_FIELD(LocalNode, value),
    GUMP_FIELD(LocalNode, next),
    GUMP_OBJECT(kDoKey),
    GUMP_OBJECT(kLabelsKey),
    GUMP_FIELD(LabelSet, n),
    GUMP_FIELD(LabelSet, of),
    {"sizeof Label", sizeof(Label), nullptr},
    GUMP_FIELD(Label, key),
    GUMP_FIELD(Label, value),
    GUMP_FIELD(G, waitsince),
    GUMP_FIELD(G, bubble),
    GUMP_FIELD(Bubble, id),
    GUMP_FIELD(G, group),
    GUMP_FIELD(G, groupFlags),
    GUMP_VALUE(kGroupQueued),
    GUMP_OBJECT(groupChunks),
    GUMP_VALUE(kGroupChunk),
    {"sizeof Group", sizeof(Group), nullptr},
    GUMP_FIELD(Group, shortName),
    GUMP_FIELD(Home, name),
    GUMP_VALUE(kGidle),
    GUMP_VALUE(kGrunnable),
    GUMP_VALUE(kGrunning),
    GUMP_VALUE(kGsyscall),
    GUMP_VALUE(kGwaiting),
    GUMP_VALUE(kGdead),
    GUMP_VALUE(kGscan),
    GUMP_VALUE(kGtracked),
    GUMP_VALUE(kGhibernated),
    {"kWaitReasonText", kNumWaitReasonTexts, kWaitReasonText},
    // The frame at G.sched.sp (asm_*.S): where the registers are, by the names
    // that gdb has for them.
    GUMP_SAVED_FRAME,
    // Threads: a list.
    GUMP_OBJECT(allm),
    GUMP_FIELD(M, alllink),
    GUMP_FIELD(M, id),
    GUMP_FIELD(M, procid),
    GUMP_FIELD(M, curg),
    GUMP_FIELD(M, p),
    GUMP_FIELD(M, locks),
    GUMP_FIELD(M, spinning),
    GUMP_FIELD(M, blocked),
    GUMP_FIELD(M, lockedg),
    GUMP_FIELD(M, home),
    // Ps: an array of pointers.
    {"allp", 0, allp},
    GUMP_OBJECT(gomaxprocs),
    GUMP_FIELD(P, id),
    GUMP_FIELD(P, status),
    GUMP_FIELD(P, schedtick),
    GUMP_FIELD(P, syscalltick),
    GUMP_FIELD(P, m),
    GUMP_FIELD(P, runqhead),
    GUMP_FIELD(P, runqtail),
    GUMP_FIELD(P, runnext),
    GUMP_FIELD(P, gFreeN),
    GUMP_FIELD(P, timers.len),
    GUMP_VALUE(kPidle),
    GUMP_VALUE(kPrunning),
    GUMP_VALUE(kPsyscall),
    GUMP_VALUE(kPgcstop),
    GUMP_VALUE(kPdead),
    GUMP_OBJECT(sched),
    GUMP_FIELD(Schedt, npidle),
    GUMP_FIELD(Schedt, nmspinning),
    GUMP_FIELD(Schedt, needspinning),
    GUMP_FIELD(Schedt, nmidle),
    GUMP_FIELD(Schedt, nmidlelocked),
    GUMP_FIELD(Schedt, mnext),
    GUMP_FIELD(Schedt, nmfreed),
    GUMP_FIELD(Schedt, runqsize),
    GUMP_FIELD(Schedt, nposted),
    GUMP_FIELD(Schedt, gcwaiting),
    GUMP_FIELD(Schedt, stopwait),
    GUMP_FIELD(Schedt, sysmonwait),
    // What goroutines wait on.
    GUMP_FIELD(Sudog, g),
    GUMP_FIELD(Sudog, next),
    GUMP_FIELD(Hchan, closed),
    GUMP_FIELD(Hchan, qcount),
    GUMP_FIELD(Hchan, recvx),
    GUMP_FIELD(Hchan, dataqsiz),
    GUMP_FIELD(Hchan, elemsize),
    GUMP_FIELD(Hchan, buf),
    GUMP_FIELD(Hchan, recvq.first),
    GUMP_FIELD(Hchan, sendq.first),
    {nullptr, 0, nullptr},
};
