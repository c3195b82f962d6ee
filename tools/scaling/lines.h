// Counts which cache lines the Ps of a program share, and which code writes
// them.
//
// A program with this counter is built with -fsanitize=thread, so that the
// compiler reports each access to memory, but without ThreadSanitizer's
// library. lines.cc has the functions that the compiler calls. They simulate
// caches without a limit, one for each P and one for all threads without a P:
//
// * A write of a line that another cache holds takes it from there: a move.
// * A read of a line that the reader's cache does not hold, and another does,
//   is a move as well.
//
// On a machine with a processor for each P, a move is a cache miss of some 50
// to 200 ns. All accesses of one line take turns, so lines with many moves are
// the ones that limit how far a program scales.
#ifndef TOOLS_SCALING_LINES_H_
#define TOOLS_SCALING_LINES_H_

#include <cstdint>
#include <vector>

namespace gump::scaling {

inline constexpr int kSites = 16;

// Site is an instruction that accesses a line, by its return address.
struct Site {
  uintptr_t pc = 0;
  int64_t writes = 0;
  int64_t moves = 0;  // by reads and by writes
};

// Line is a line that several caches have held and that was written.
struct Line {
  uintptr_t address = 0;
  int64_t writes = 0;
  int64_t moves = 0;
  int caches = 0;           // how many have held it
  Site sites[kSites] = {};  // the rest of the counts belongs to other sites
};

// Range is the memory of an object of the runtime, or of a goroutine's stack.
struct Range {
  const char* name;
  uintptr_t start;
  uintptr_t end;
};
std::vector<Range> RuntimeObjects();

// StartCounting forgets all lines, and counts from now on.
void StartCounting();
// StopCounting stops, and returns the lines that were shared.
std::vector<Line> StopCounting();
// Missed returns how many accesses were not counted, because another thread
// kept the line's entry for too long, or the table was full.
int64_t Missed();

}  // namespace gump::scaling

#endif  // TOOLS_SCALING_LINES_H_
