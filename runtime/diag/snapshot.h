// What dumps and lists know of goroutines: a GRecord of one, and a Snapshot of
// all.
#ifndef RUNTIME_DIAG_SNAPSHOT_H_
#define RUNTIME_DIAG_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/linkname_pprof.h"
#include "runtime/diag/goroutine_profile.h"
#include "runtime/diag/traceback.h"
#include "runtime/diag/unwind.h"

namespace gump::rt {

class LeakSearch;

// takeSelf, takeParked and takeOther fill in *r. The last two also fill in
// *frames.
//
// takeSelf describes the goroutine that the calling thread runs. The caller
// collects the frames.
// On: any.  P: either.  Locks: none.  Parks: no.
void takeSelf(const G* gp, GRecord* r);
// takeParked describes and walks gp, which cannot run in the meantime, and
// finds out how long it has waited.
// On: any.  P: either.  Locks: none.  Parks: no.
void takeParked(G* gp, uint32_t status, int64_t now, GRecord* r,
                Frames* frames);
// takeOther describes a goroutine that the calling thread does not run, and
// walks its stack if it has a saved context. Returns false if gp is dead, or is
// the pseudo-G of a foreign thread that is not parked. A stop of the world does
// not hold such a thread still. If gp has labels, *r has a reference to them
// ((L1) of labels.cc).
// On: any.  P: either.  Locks: none (scan bits).  Parks: no.
bool takeOther(G* gp, int64_t now, GRecord* r, Frames* frames);

// hiddenInDump returns true if a dump of this level passes over gp, because it
// is dead or is the runtime's own.
// On: any.  P: either.  Locks: none.  Parks: no.
[[nodiscard]] bool hiddenInDump(const G* gp, int32_t level);

// maxAncestors returns how many ancestors of a goroutine are kept.
// ancestorsRoom returns how many bytes so many take at most.
// On: any.  P: either.  Locks: none.  Parks: no.
uint32_t maxAncestors();
size_t ancestorsRoom();

// Snapshot is a sequence of GRecords, each followed by its frames and its
// ancestors. Its memory is reserved generously and touched only as far as
// needed.
struct Snapshot {
  ProfileMemory memory;
  LeakSearch* leaks = nullptr;  // marks leaked goroutines, unless nullptr
  bool leaksOnly = false;       // and leaves out the others
  Frames frames;                // of the goroutine at hand
};

// takeSnapshot fills s with all goroutines but `self`, the caller's, and with
// the parked foreign threads. If s->leaks is set, it searches for leaks in a
// stop of the world. Unless that succeeds, s is empty.
//
// takeStopped does the same, but keeps the world stopped until all is recorded.
// On: user, or a foreign thread.  P: either.  Locks: none.  Parks: yes.
LeakStatus takeSnapshot(Snapshot* s, G* self);
LeakStatus takeStopped(Snapshot* s, const G* self);
// readSnapshot reads the entry at *at, puts its frames into s->frames, and
// moves *at to the next one. The caller drops the reference to its labels.
// On: any.  P: either.  Locks: none.  Parks: no.
GRecord readSnapshot(Snapshot* s, size_t* at);
// On: any.  P: either.  Locks: none.  Parks: no.
void freeSnapshot(const Snapshot& s);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_SNAPSHOT_H_
