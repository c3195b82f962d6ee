// What a compiler must offer for the public headers. A wrong flag ends the
// compilation here, with an error that says what is needed. Without this header
// the compiler would report a hundred errors inside of others.
//
// Every public header that includes no other header of the library includes
// this one. So the compiler reads this header before any declaration of the
// library.
#ifndef GUMP_INTERNAL_COMPILER_H_
#define GUMP_INTERNAL_COMPILER_H_

#if defined(__clang__) && __clang_major__ < 14
#error "gumption needs clang++ 14 or later: compile with clang++-14"
#define GUMP_INTERNAL_STOP
#elif !defined(__clang__) && defined(__GNUC__) && __GNUC__ < 12
#error "gumption needs g++ 12 or later: compile with g++-12"
#define GUMP_INTERNAL_STOP
#elif __cplusplus < 202002L
#error "gumption needs C++20: compile with -std=c++20 or a later standard"
#define GUMP_INTERNAL_STOP
#elif !defined(__cpp_exceptions)
#error "gumption needs exceptions: compile without -fno-exceptions"
#define GUMP_INTERNAL_STOP
#elif !defined(__linux__) || defined(__ILP32__) || \
    !(defined(__x86_64__) || defined(__aarch64__))
#error "gumption needs Linux on x86-64 or AArch64, with 64-bit pointers"
#define GUMP_INTERNAL_STOP
#endif

// Compilers go on after #error, but not after an #include of a file that does
// not exist.
#if defined(GUMP_INTERNAL_STOP)
#include "gump/internal/see_the_error_above.h"
#endif

#endif  // GUMP_INTERNAL_COMPILER_H_
