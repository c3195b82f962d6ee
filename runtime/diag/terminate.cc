// The std::terminate handler: an uncaught exception is a panic.
//
// The unwinder finds no handler between the throw and gumpGostart, where the
// unwind information says that the stack ends. So it calls terminate on the
// throwing frame's stack, before any destructor has run, and the dump shows the
// code that threw. (An exception that meets a noexcept function is different,
// because the compiler's code for that unwinds first.)
//
// The text after `panic: ` depends on the exception:
//   gump::PanicError          its what(), and nothing else
//   another std::exception    its what(), and on the next line [exception TYPE]
//   anything else             the type's name
//
// What leaves a hook of SetThreadHooks is reported in the same way. A thread
// that runs neither a goroutine nor a hook gets the handler that was set before
// ours.
#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <typeinfo>

#include "runtime/diag/panic.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/threadhooks.h"
#include "runtime/sys/signal.h"
#include "runtime/sys/tls.h"

namespace gump::rt {

namespace {

// PanicError belongs to api/, which this file must not include.
constexpr char kPanicErrorType[] = "N4gump10PanicErrorE";

std::terminate_handler previous;

// typeName may call malloc, unlike all other code that reports failures. It
// runs right after a throw, which has just called malloc on this very thread,
// and before any other thread is stopped.
const char* typeName(const std::type_info* type) {
  int status = 0;
  const char* text =
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  return text != nullptr ? text : type->name();
}

// whatOf returns the text of the exception in flight if it is a std::exception,
// and nullptr otherwise. The text lives in the exception, which the terminate
// call keeps alive.
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
  if (inThreadHook(getg()->m)) leaveThreadHook();
  fatalpanic(text, static_cast<uint32_t>(strlen(text)), type);
}

[[noreturn]] void onTerminate() {
  const G* gp = getg();
  if (gp == nullptr || gp->m == nullptr || gp->foreign ||
      (gp == &gp->m->g0 && !inThreadHook(gp->m))) {
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
