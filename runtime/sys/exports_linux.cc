// A module's table DT_GNU_HASH leads from a name to its symbols: the hash gives
// a bucket, and the bucket the first of a row of symbols. The row has the
// hashes of its symbols, without the lowest bit, which marks the last one.
#include "runtime/sys/exports_linux.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace gump::rt {

namespace {

struct HashTables {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const uint32_t* hash = nullptr;
};

HashTables hashTablesOf(const dl_phdr_info& module) {
  HashTables t;
  const ElfW(Dyn)* d = nullptr;
  for (size_t i = 0; i < module.dlpi_phnum; i++) {
    if (module.dlpi_phdr[i].p_type == PT_DYNAMIC) {
      d = reinterpret_cast<const ElfW(Dyn)*>(module.dlpi_addr +
                                             module.dlpi_phdr[i].p_vaddr);
    }
  }
  for (; d != nullptr && d->d_tag != DT_NULL; d++) {
    // The loader has added the module's address, except in the vdso.
    uintptr_t p = d->d_un.d_ptr;
    if (p < module.dlpi_addr) p += module.dlpi_addr;
    if (d->d_tag == DT_SYMTAB) {
      t.symbols = reinterpret_cast<const ElfW(Sym)*>(p);
    } else if (d->d_tag == DT_STRTAB) {
      t.names = reinterpret_cast<const char*>(p);
    } else if (d->d_tag == DT_GNU_HASH) {
      t.hash = reinterpret_cast<const uint32_t*>(p);
    }
  }
  return t;
}

uint32_t hashOf(const char* name) {
  uint32_t h = 5381;
  for (; *name != '\0'; name++) h = h * 33 + static_cast<uint8_t>(*name);
  return h;
}

void* find(const dl_phdr_info& module, const HashTables& t, const char* name) {
  const uint32_t nbuckets = t.hash[0];
  const uint32_t first = t.hash[1];  // the first symbol that is in the table
  const uint32_t bloomWords = t.hash[2];
  const uint32_t* buckets =
      t.hash + 4 + bloomWords * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* row = buckets + nbuckets;
  if (nbuckets == 0) return nullptr;
  const uint32_t h = hashOf(name);
  uint32_t i = buckets[h % nbuckets];
  if (i < first) return nullptr;  // the bucket is empty
  for (;; i++) {
    const uint32_t at = row[i - first];
    const ElfW(Sym)& s = t.symbols[i];
    if ((at | 1) == (h | 1) && s.st_shndx != SHN_UNDEF && s.st_value != 0 &&
        strcmp(t.names + s.st_name, name) == 0) {
      return reinterpret_cast<void*>(module.dlpi_addr + s.st_value);
    }
    if ((at & 1) != 0) return nullptr;
  }
}

struct Search {
  const char* const* names;
  size_t n;
  void (*visit)(void* const* found, void* arg);
  void* arg;
};

int visitModule(dl_phdr_info* module, size_t, void* arg) {
  const auto* s = static_cast<const Search*>(arg);
  const HashTables t = hashTablesOf(*module);
  if (t.symbols == nullptr || t.names == nullptr || t.hash == nullptr) return 0;
  void* found[kMaxExports] = {};
  for (size_t i = 0; i < s->n; i++) {
    found[i] = find(*module, t, s->names[i]);
    if (i == 0 && found[0] == nullptr) return 0;
  }
  s->visit(found, s->arg);
  return 0;
}

}  // namespace

void forEachExporter(const char* const* names, size_t n,
                     void (*visit)(void* const* found, void* arg), void* arg) {
  Search s{names, n, visit, arg};
  dl_iterate_phdr(visitModule, &s);
}

}  // namespace gump::rt
