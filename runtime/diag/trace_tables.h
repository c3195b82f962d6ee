// The stacks and the strings of a generation.
#ifndef RUNTIME_DIAG_TRACE_TABLES_H_
#define RUNTIME_DIAG_TRACE_TABLES_H_

#include <cstdint>
#include <string>

namespace gump::rt {

// traceTables returns the batches of the stacks and the strings of generation
// gen, which has ended. It finds the names of functions, so it is slow. Throws
// std::bad_alloc if there is no memory.
// On: user, or a foreign thread.  P: either.  Locks: traceSema.  Parks: no.
std::string traceTables(uint64_t gen);

}  // namespace gump::rt

#endif  // RUNTIME_DIAG_TRACE_TABLES_H_
