// From addresses to text.
//
// absl::Symbolize finds and demangles names with system calls and memory of its
// own; _dl_find_object finds modules without the loader's lock. Neither calls
// malloc (I1 of traceback.cc).
//
// Rejected: file and line through addr2line or libbacktrace (a process, or
// malloc); a table of modules read at start (dlopen makes it stale).
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "absl/base/internal/low_level_alloc.h"
#include "absl/debugging/symbolize.h"
#include "gump/internal/linkname.h"
#include "gump/internal/linkname_debug.h"
#include "runtime/diag/traceback.h"
#include "runtime/diag/unwind.h"
#include "runtime/sys/atomic.h"
#include "runtime/sys/descriptor.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/sanitizer.h"

namespace gump::rt {

namespace {

constexpr uint32_t kMaxFrames = 100;

// Address space for absl's symboliser, which aborts if it can map no more.
constexpr size_t kReserveSize = size_t{1} << 20;
Atomic<void*> reserve;  // the thread that takes it out unmaps it

char exePath[512] = "/proc/self/exe";  // ld.so knows the program only as ""

// plainName writes a mangled name that consists of identifiers and ABI tags as
// text. Returns false if the name contains anything else. It stands in for
// absl's demangler, which gives up at the tag [cxx11] of every function that
// returns std::string.
bool plainName(const char* in, char* out, size_t size) {
  in += 2;  // _Z
  bool nested = *in == 'N';
  if (nested) in++;
  if (*in == 'K') in++;  // a const member function
  Writer w{.buf = out, .cap = size - 1};
  while (*in != '\0' && *in != 'E') {
    bool tag = *in == 'B';
    if (tag) in++;
    size_t n = 0;
    while (*in >= '0' && *in <= '9' && n < size) {
      n = n * 10 + static_cast<size_t>(*in++ - '0');
    }
    if (n == 0 || strnlen(in, n) < n) return false;
    if (!tag) {
      if (w.total > 0) put(&w, "::", 2);
      put(&w, in, n);
    }
    in += n;
    if (!nested && *in != 'B') break;  // the rest is the parameters
  }
  out[w.len] = '\0';
  return true;
}

// The name of a function of a shared library of ours that was stripped. Only
// functions that public headers declare have names there. Such a frame is
// hidden from users because its name begins as those of the runtime do.
constexpr char kStripped[] = "gump::rt::(stripped)";

// inStrippedLibrary returns true if pc, which has no name, is in our code and
// our code is not in the program itself.
bool inStrippedLibrary(uintptr_t pc) {
  dl_find_object ours;
  dl_find_object its;
  return _dl_find_object(const_cast<char*>(kStripped), &ours) == 0 &&
         _dl_find_object(reinterpret_cast<void*>(pc), &its) == 0 &&
         ours.dlfo_link_map == its.dlfo_link_map &&
         ours.dlfo_link_map->l_name[0] != '\0';
}

// symbolName writes the name of the function around pc to out, without the "()"
// that the demangler puts behind C++ names.
void symbolName(uintptr_t pc, char (&out)[FrameText::kMaxName]) {
  // Relaxed: the bytes behind the pointer are not read.
  if (void* p = reserve.xchg(nullptr, relaxed)) sysFree(p, kReserveSize);
  char name[FrameText::kMaxName];
  sanitizerIgnoreBegin();  // absl hands a cache from thread to thread
  const bool found =
      absl::Symbolize(reinterpret_cast<void*>(pc), name, sizeof(name));
  sanitizerIgnoreEnd();
  if (!found) {
    const char* unknown = inStrippedLibrary(pc) ? kStripped : "?";
    memcpy(out, unknown, strlen(unknown) + 1);
    return;
  }
  if (strncmp(name, "_Z", 2) == 0 && plainName(name, out, sizeof(out))) return;
  size_t n = strlen(name);
  if (n > 2 && name[n - 2] == '(' && name[n - 1] == ')') name[n - 2] = '\0';
  memcpy(out, name, n + 1);
}

// interestsUsers returns true if a function is of interest to a user looking
// for an error in the program rather than in the runtime. The thunks of go()
// are of interest, because the compiler often inlines the user's whole function
// into them. runFinalizers tells that a goroutine runs a finalizer, as in Go.
bool interestsUsers(const char* name) {
  static constexpr const char* kShown[] = {"gump::internal::k",
                                           "gump::rt::runFinalizers"};
  // Operations of channels are hidden, as in Go, where they belong to package
  // runtime.
  static constexpr const char* kHidden[] = {
      "gump::rt::",        "gump::internal::", "gumpMcall",
      "gumpGostart",       "gumpMstart",       "gumpOnG0",
      "gumpGoroutineMain", "gumpCallAtop",     "gumpCallSaved",
      "gumpSwitch",        "_Unwind_",         "__cxa_",
      "__cxxabiv1::",      "std::terminate",   "gump::chan<",
      "gump::send_chan<",  "gump::recv_chan<",
  };
  for (const char* prefix : kShown) {
    if (strncmp(name, prefix, strlen(prefix)) == 0) return true;
  }
  for (const char* prefix : kHidden) {
    if (strncmp(name, prefix, strlen(prefix)) == 0) return false;
  }
  return true;
}

// frameText returns what a dump says about pc. The result is in *known, or in
// *own if known is nullptr. It is valid until the next call.
const FrameText& frameText(uintptr_t pc, FrameTexts* known, FrameText* own) {
  FrameText* t = own;
  if (known != nullptr) {
    // Fibonacci hashing: the place comes from the high bits of the product,
    // which depend on all bits of the address.
    constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
    constexpr int kShift = 64 - std::bit_width(FrameTexts::kPlaces - 1);
    t = &known->places[(pc * kGolden) >> kShift];
    if (t->pc == pc) return *t;
  }
  t->pc = pc;
  symbolName(pc, t->name);
  t->nameSize = static_cast<uint16_t>(strlen(t->name));
  t->interestsUsers = interestsUsers(t->name);
  Writer w{.buf = t->location, .cap = sizeof(t->location)};
  printLocation(&w, pc);
  t->locationSize = static_cast<uint16_t>(w.total > w.len ? 0 : w.len);
  return *t;
}

void putLocation(Writer* w, const FrameText& t) {
  if (t.locationSize == 0) {
    printLocation(w, t.pc);
  } else {
    put(w, t.location, t.locationSize);
  }
}

bool visible(uintptr_t pc, int32_t level, FrameTexts* known) {
  FrameText own;
  return level >= 2 || frameText(pc, known, &own).interestsUsers;
}

}  // namespace

bool frameName(uintptr_t pc, char (&out)[FrameText::kMaxName]) {
  symbolName(pc, out);
  return interestsUsers(out);
}

// Runs at the first use of the library. Its caller expects errno unchanged.
GUMP_NOINLINE void symbolinit() {
  const int saved = errno;
  ssize_t n = readlink("/proc/self/exe", exePath, sizeof(exePath) - 1);
  if (n > 0) exePath[n] = '\0';
  absl::InitializeSymbolizer(nullptr);
  // Absl makes its arenas once, at the first use, under a lock. A dying thread
  // would wait for that lock too, and a goroutine that was preempted while it
  // held the lock no longer runs then. So the arenas are made here. From then
  // on the symboliser takes no lock whose holder may be preempted. (The
  // function is internal to absl, but no public one does this without mapping
  // memory, which may fail.)
  (void)absl::base_internal::LowLevelAlloc::DefaultArena();
  reserve.store(sysReserve(kReserveSize), relaxed);  // threads start later
  errno = saved;
}

size_t symbolText(uintptr_t pc, char* out, size_t size) noexcept {
  const StandardHold hold;  // as in stackDump
  char name[FrameText::kMaxName];
  symbolName(pc, name);
  const size_t n = std::min(strlen(name), size);
  memcpy(out, name, n);
  return n;
}

size_t locationText(uintptr_t pc, char* out, size_t size) noexcept {
  char line[FrameText::kMaxLocation];
  Writer w{.buf = line, .cap = sizeof(line)};
  printLocation(&w, pc);
  size_t n = w.len;
  if (n > 0 && line[n - 1] == '\n') n--;
  const char* begin = line;
  if (n > 0 && line[0] == '\t') {
    begin++;
    n--;
  }
  n = std::min(n, size);
  memcpy(out, begin, n);
  return n;
}

bool hidesFromUsers(const char* name) noexcept { return !interestsUsers(name); }

void printLocation(Writer* w, uintptr_t pc) {
  dl_find_object object;
  if (_dl_find_object(reinterpret_cast<void*>(pc), &object) != 0) {
    print(w, "\t? +0x%X\n", uint64_t{pc});
    return;
  }
  const link_map* module = object.dlfo_link_map;
  print(w, "\t%s +0x%X\n", module->l_name[0] == '\0' ? exePath : module->l_name,
        uint64_t{pc - module->l_addr});
}

void printCreator(Writer* w, uintptr_t pc, uint64_t parent, const GRecord* r,
                  FrameTexts* known) {
  FrameText own;
  const FrameText& t = frameText(pc, known, &own);
  print(w, "created by ");
  put(w, t.name, t.nameSize);
  if (parent != 0) print(w, " in goroutine %U", parent);
  if (r != nullptr && r->scope != nullptr) {
    print(w, " in ");
    printScope(w, *r);
  }
  put(w, "\n", 1);
  putLocation(w, t);
}

void printFrame(Writer* w, uintptr_t pc, int32_t level, FrameTexts* known) {
  FrameText own;
  const FrameText& t = frameText(pc, known, &own);
  if (level < 2 && !t.interestsUsers) return;
  put(w, t.name, t.nameSize);
  put(w, "(...)\n", 6);
  putLocation(w, t);
}

uint32_t throwSite(const Frames& f) {
  constexpr uint32_t kDepth = 12;
  uint32_t site = 0;
  for (uint32_t i = 0; i < f.kept && i < kDepth; i++) {
    char name[FrameText::kMaxName];
    symbolName(f.pcs[i], name);
    if (strcmp(name, "__cxa_throw") == 0 ||
        strcmp(name, "__cxa_rethrow") == 0 ||
        strcmp(name, "std::terminate") == 0 ||
        strcmp(name, "std::rethrow_exception") == 0) {
      site = i + 1;
    }
  }
  return site;
}

void printFrames(Writer* w, const Frames& f, int32_t level, uint32_t first,
                 FrameTexts* known) {
  uint32_t head = f.kept;  // print pcs[0, head) and pcs[tail, kept)
  uint32_t tail = f.kept;
  uint64_t elided = 0;
  if (f.kept > kMaxFrames || f.lost > 0) {
    bool shown[2 * Frames::kKeep];
    uint64_t n = f.lost;
    for (uint32_t i = 0; i < f.kept; i++) {
      shown[i] = i >= first && visible(f.pcs[i], level, known);
      if (shown[i]) n++;
    }
    if (n > kMaxFrames) {
      const uint32_t headLimit = f.lost > 0 ? Frames::kKeep : f.kept;
      const uint32_t tailLimit = f.lost > 0 ? Frames::kKeep : 0;
      uint32_t left = kMaxFrames / 2;
      for (head = 0; left > 0 && head < headLimit; head++) left -= shown[head];
      elided = n - (kMaxFrames / 2 - left);
      left = kMaxFrames / 2;
      for (; left > 0 && tail > tailLimit;) left -= shown[--tail];
      elided -= kMaxFrames / 2 - left;
    }
  }
  for (uint32_t i = first; i < head; i++) {
    printFrame(w, f.pcs[i], level, known);
  }
  if (elided > 0) print(w, "...%U frames elided...\n", elided);
  for (uint32_t i = tail; i < f.kept; i++) {
    printFrame(w, f.pcs[i], level, known);
  }
  if (f.truncated) print(w, "...additional frames elided...\n");
}

}  // namespace gump::rt
