// A module has a table of relocations for the slots that the loader fills
// (JUMP_SLOT and GLOB_DAT). A slot holds the address of the function, or, until
// the first call of a module that binds lazily, that of a stub. We store our
// address over either. The loader may have made the page read-only since
// (RELRO), and then it is made writable for good: another thread may be in the
// middle of a store to it.
//
// Rejected:
//  * Symbols of our own with the names of the functions, in the library. Each
//    call in each program would pay for them. ThreadSanitizer has such symbols
//    itself, and only one of the two would be called.
//  * Redirecting modules that are loaded later. That needs a dlopen of our own,
//    which would look for libraries in our RUNPATH and not in its caller's.
#include "runtime/sys/import_slots.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "runtime/sys/atomic.h"
#include "runtime/sys/base.h"

namespace gump::rt {

namespace {

#if defined(__x86_64__)
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT;
constexpr uint32_t kGlobDat = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT;
constexpr uint32_t kGlobDat = R_AARCH64_GLOB_DAT;
#endif

// Tables are those parts of a module's dynamic section that we read.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  struct {
    const ElfW(Rela) * begin = nullptr;
    size_t bytes = 0;
  } relocations[2];
};

Tables tablesOf(const dl_phdr_info& module) {
  Tables t;
  const ElfW(Dyn)* dynamic = nullptr;
  for (size_t i = 0; i < module.dlpi_phnum; i++) {
    if (module.dlpi_phdr[i].p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(module.dlpi_addr +
                                                   module.dlpi_phdr[i].p_vaddr);
    }
  }
  if (dynamic == nullptr) return t;  // a static program
  // The loader has added the module's address to these, except in the vdso.
  const auto at = [&](const ElfW(Dyn) * d) {
    const uintptr_t p = d->d_un.d_ptr;
    return p < module.dlpi_addr ? p + module.dlpi_addr : p;
  };
  for (const ElfW(Dyn)* d = dynamic; d->d_tag != DT_NULL; d++) {
    switch (d->d_tag) {
      case DT_SYMTAB:
        t.symbols = reinterpret_cast<const ElfW(Sym)*>(at(d));
        break;
      case DT_STRTAB:
        t.names = reinterpret_cast<const char*>(at(d));
        break;
      case DT_JMPREL:
        t.relocations[0].begin = reinterpret_cast<const ElfW(Rela)*>(at(d));
        break;
      case DT_PLTRELSZ:
        t.relocations[0].bytes = d->d_un.d_val;
        break;
      case DT_RELA:
        t.relocations[1].begin = reinterpret_cast<const ElfW(Rela)*>(at(d));
        break;
      case DT_RELASZ:
        t.relocations[1].bytes = d->d_un.d_val;
        break;
      default:
        break;
    }
  }
  return t;
}

// forEachSlot calls visit(slot, symbol, name) for each slot of a module.
template <class Visit>
void forEachSlot(const dl_phdr_info& module, Visit visit) {
  const Tables t = tablesOf(module);
  if (t.symbols == nullptr || t.names == nullptr) return;
  for (const auto& table : t.relocations) {
    if (table.begin == nullptr) continue;
    const size_t n = table.bytes / sizeof(*table.begin);
    for (size_t i = 0; i < n; i++) {
      const ElfW(Rela)& r = table.begin[i];
      const uint32_t type = ELF64_R_TYPE(r.r_info);
      if (type != kJumpSlot && type != kGlobDat) continue;
      const ElfW(Sym)& symbol = t.symbols[ELF64_R_SYM(r.r_info)];
      visit(reinterpret_cast<void**>(module.dlpi_addr + r.r_offset), symbol,
            t.names + symbol.st_name);
    }
  }
}

struct Redirection {
  const Import* imports;
  size_t n;
  size_t slots = 0;

  const Import* find(const char* name) const {
    for (size_t i = 0; i < n; i++) {
      if (strcmp(imports[i].name, name) == 0) return &imports[i];
    }
    return nullptr;
  }
};

int redirectModule(dl_phdr_info* module, size_t, void* arg) {
  auto* all = static_cast<Redirection*>(arg);
  forEachSlot(*module, [&](void** slot, const ElfW(Sym)&, const char* name) {
    const Import* import = all->find(name);
    if (import == nullptr || import->original->load(relaxed) == nullptr) return;
    const uintptr_t page =
        reinterpret_cast<uintptr_t>(slot) & ~uintptr_t{kPageSize - 1};
    if (mprotect(reinterpret_cast<void*>(page), kPageSize,
                 PROT_READ | PROT_WRITE) != 0) {
      return;
    }
    // Release: the originals are set. Other threads read the slot by a call.
    reinterpret_cast<Atomic<void*>*>(slot)->store(import->replacement, release);
    all->slots++;
  });
  return 0;
}

// moduleOf returns the start of the module that contains p, or nullptr.
const void* moduleOf(const void* p) {
  dl_find_object object;
  if (_dl_find_object(const_cast<void*>(p), &object) != 0) return nullptr;
  return object.dlfo_map_start;
}

struct Canonical {
  const char* name;
  const void* at;
  bool found = false;
};

// If a program takes the address of a function that it imports, and is not
// position-independent, that address is a stub of the program. The program's
// symbol is undefined then, but has a value.
int findCanonical(dl_phdr_info* module, size_t, void* arg) {
  auto* c = static_cast<Canonical*>(arg);
  forEachSlot(*module, [&](void**, const ElfW(Sym) & symbol, const char* name) {
    if (symbol.st_shndx == SHN_UNDEF && symbol.st_value != 0 &&
        strcmp(name, c->name) == 0 &&
        reinterpret_cast<const void*>(module->dlpi_addr + symbol.st_value) ==
            c->at) {
      c->found = true;
    }
  });
  return 0;
}

// resolve finds the function that a call by name reaches. It must not be a stub
// that jumps through a slot.
void* resolve(const char* name) {
  void* p = dlsym(RTLD_DEFAULT, name);
  Canonical c{.name = name, .at = p};
  if (p != nullptr) dl_iterate_phdr(findCanonical, &c);
  return c.found ? dlsym(RTLD_NEXT, name) : p;
}

int findProgram(dl_phdr_info* module, size_t, void* arg) {
  for (size_t i = 0; i < module->dlpi_phnum; i++) {
    if (module->dlpi_phdr[i].p_type != PT_LOAD) continue;
    *static_cast<uintptr_t*>(arg) =
        module->dlpi_addr + module->dlpi_phdr[i].p_vaddr;
    return 1;
  }
  return 1;  // the program is the first
}

}  // namespace

GUMP_NOINLINE Redirected redirectImports(const Import* imports, size_t n) {
  uintptr_t program = 0;
  dl_iterate_phdr(findProgram, &program);
  const void* const program_module = moduleOf(reinterpret_cast<void*>(program));
  Redirected done;
  for (size_t i = 0; i < n; i++) {
    void* original = resolve(imports[i].name);
    if (original != nullptr && moduleOf(original) == program_module) {
      done.defined_by_program = true;
    }
    imports[i].original->store(original, relaxed);  // published by the slots
  }
  if (done.defined_by_program) return done;
  Redirection all{.imports = imports, .n = n};
  dl_iterate_phdr(redirectModule, &all);
  done.slots = all.slots;
  return done;
}

}  // namespace gump::rt
