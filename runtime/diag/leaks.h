// The search for leaked goroutines, for the goroutineleak profile. leaks.cc has
// the method and why it is sound.
#ifndef RUNTIME_DIAG_LEAKS_H_
#define RUNTIME_DIAG_LEAKS_H_

#include <cstddef>
#include <cstdint>

#include "gump/internal/linkname.h"
#include "runtime/diag/leak_memory.h"

namespace gump::rt {

struct G;

// LeakSearch is one search. Its owner calls prepare, stops the world, calls
// run, asks of(), starts the world again and calls finish.
class LeakSearch {
 public:
  // prepare reserves memory and opens files. The caller holds a StandardHold.
  // On: user, or a foreign thread.  P: either.  Locks: none.  Parks: no.
  [[nodiscard]] LeakStatus prepare();
  // run searches. Returns kNoMemory if the search needs more memory than there
  // is, and kNoMaps if /proc/self/maps cannot be read.
  // On: as prepare; the world is stopped.  P: stopped.  Locks: those of the
  // semaphore roots, AddressSanitizer's.  Parks: no.
  [[nodiscard]] LeakStatus run();
  // of returns whether a goroutine is leaked, after run has returned kDone.
  // On: any.  P: either.  Locks: none.  Parks: no.
  [[nodiscard]] Leak of(const G* gp) const;
  // finish frees the memory and closes the files, also after prepare failed.
  // On: any.  P: either.  Locks: none.  Parks: no.
  void finish();

 private:
  struct Found {
    const G* gp;
    Leak leak;
  };
  friend class LeakGraph;

  LeakStore store_;
  ProcessMemory memory_;
  Table<Found> found_;  // sorted by gp
};

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_LEAKS_H_
