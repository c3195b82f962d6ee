// The std::terminate handler: an exception that nobody catches is a panic.
//
// The unwinder finds no handler between the throw and gumpGostart, where the
// unwind information says that the stack ends; so it calls terminate on the
// throwing frame's stack, before any destructor has run, and the dump shows who
// threw. (An exception that meets a noexcept function is different: the
// compiler's code for that unwinds first.)
//
// What is printed behind `panic: `
//   gump::PanicError          its what(), and nothing else
//   another std::exception    its what(), and on the next line [exception TYPE]
//   anything else             the type's name
//
// A thread that runs no goroutine gets the handler that was there before us.
#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <typeinfo>

#include "runtime/panic.h"
#include "runtime/runtime2.h"
#include "runtime/signal.h"

namespace gump::rt {

namespace {

// PanicError belongs to api/, where this file must not look.
constexpr char kPanicErrorType[] = "N4gump10PanicErrorE";

std::terminate_handler previous;

// typeName may call malloc, unlike all else that reports failures: it runs
// right after a throw, which has just done so on this very thread, and before
// any other thread is stopped.
const char* typeName(const std::type_info* type) {
  int status = 0;
  const char* text =
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  return text != nullptr ? text : type->name();
}

// whatOf is the text of the exception in flight if it is a std::exception, else
// nullptr. The text lives in the exception, which the terminate call keeps
// alive.
const char* whatOf() {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return nullptr;
  }
}

[[noreturn]] void panicWith(const char* text, const char* type) {
  fatalpanic(text, static_cast<uint32_t>(strlen(text)), type);
}

[[noreturn]] void onTerminate() {
  const G* gp = getg();
  if (gp == nullptr || gp->m == nullptr || gp == &gp->m->g0 || gp->foreign) {
    if (previous != nullptr) previous();
    std::abort();
  }
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) {
    panicWith("std::terminate called without an active exception", nullptr);
  }
  const char* what = whatOf();
  if (what == nullptr) panicWith(typeName(type), nullptr);
  if (strcmp(type->name(), kPanicErrorType) == 0) panicWith(what, nullptr);
  panicWith(what, typeName(type));
}

}  // namespace

void initterminate() { previous = std::set_terminate(onTerminate); }

}  // namespace gump::rt
