// Text without malloc, stdio or locks. It is for fatal errors, traces and
// dumps. These may run in a signal handler. They may also run beside a thread
// that was stopped inside malloc or stdio, or while it held a lock.
//
// A Writer streams to a descriptor or to a function through its buffer, or
// fills the buffer. A buffer that is full grows if the Writer has a function
// for that. Otherwise the Writer only counts the bytes that do not fit. It has
// no lock, because one thread owns it.
#ifndef RUNTIME_SYS_PRINT_H_
#define RUNTIME_SYS_PRINT_H_

#include <cstdarg>
#include <cstddef>
#include <cstdint>

namespace gump::rt {

inline constexpr int kNoFd = -1;
inline constexpr int kStderr = 2;

struct Writer {
  char* buf = nullptr;
  size_t cap = 0;
  int fd = kNoFd;    // kNoFd: memory only
  size_t len = 0;    // bytes in buf
  size_t total = 0;  // bytes written so far, including dropped ones
  // For a Writer to memory: makes the buffer larger. It is a BufferGrower
  // (linkname_runtime.h). If it is nullptr, the buffer stays as it is.
  char* (*grow)(void* arg, size_t* size) = nullptr;
  // For a Writer to a function: takes the n bytes of the buffer. It is a
  // TextSink (linkname_runtime.h). Once it has refused some, it gets no more.
  bool (*sink)(void* arg, const char* text, size_t n) = nullptr;
  bool refused = false;
  void* arg = nullptr;  // for grow and sink
};

// put appends n bytes.
// On: any.  P: either.  Locks: none.  Parks: no (may block in write(2)).
void put(Writer* w, const char* s, size_t n);
// print formats as panic.h's printf does. Both also know %Q, a string in double
// quotes, as Go prints it: in printable ASCII, with escapes for the rest.
// On: any.  P: either.  Locks: none.  Parks: no (may block in write(2)).
void print(Writer* w, const char* format, ...);
void vprint(Writer* w, const char* format, va_list args);
// flush empties the buffer of a Writer that streams. For a descriptor it makes
// as few calls of write(2) as the kernel allows.
// On: any.  P: either.  Locks: none.  Parks: as the sink does, if there is one;
// otherwise no (may block in write(2)).
void flush(Writer* w);

}  // namespace gump::rt

#endif  // RUNTIME_SYS_PRINT_H_
