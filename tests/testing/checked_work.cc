#include "tests/testing/checked_work.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cfenv>
#include <csetjmp>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/testing/stress.h"

namespace gump::testing {
namespace {

constexpr uint64_t kPrime = 0x100000001b3;

// Mixed adds value to a hash.
uint64_t Mixed(uint64_t hash, uint64_t value) {
  return (std::rotl(hash, 23) ^ value) * kPrime;
}

// Bytes hashes memory.
uint64_t Bytes(const void* p, size_t n) {
  uint64_t hash = n;
  for (size_t i = 0; i < n; i++) {
    hash = Mixed(hash, static_cast<const unsigned char*>(p)[i]);
  }
  return hash;
}

// ---- Registers

uint64_t IntegerRegisters(uint64_t seed) {
  uint64_t a = seed, b = ~seed, c = seed * 3, d = seed ^ 0x55, e = seed + 7,
           f = seed << 9, g = seed >> 3, h = seed * kPrime;
  for (int i = 0; i < 800'000; i++) {
    a += std::rotl(b, 7);
    b ^= c * 5;
    c += std::rotl(d, 31) ^ e;
    d = d * kPrime + f;
    e ^= g + a;
    f += h ^ std::rotr(e, 5);
    g = g * 3 + 1;
    h ^= a + (c << 1);
  }
  return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
}

// On x86-64 all of this lives on the x87 stack.
uint64_t LongDoubles(uint64_t seed) {
  long double a = 1 + static_cast<long double>(seed % 1000) / 7;
  long double b = a / 3, c = b / 3, d = c / 3, e = d / 3, f = e / 3;
  const long double step = a;
  for (int i = 0; i < 200'000; i++) {
    a = a * 0.25L + b + step;
    b = b * 0.5L + c;
    c = c * 0.25L + d;
    d = d * 0.125L + e;
    e = e * 0.5L + f;
    f = f * 0.5L + a / (1 + a);
  }
  uint64_t hash = 0;
  for (const long double x : {a, b, c, d, e, f}) {
    hash = Mixed(hash, std::bit_cast<uint64_t>(static_cast<double>(x)));
    // The bits that a double does not have.
    hash =
        Mixed(hash, std::bit_cast<uint64_t>(static_cast<double>(
                        x - static_cast<long double>(static_cast<double>(x)))));
  }
  return hash;
}

uint64_t Doubles(uint64_t seed) {
  double x[14];
  for (int k = 0; k < 14; k++)
    x[k] = 1 + static_cast<double>(seed % 977) / (k + 3);
  for (int i = 0; i < 40'000; i++) {
    for (int k = 0; k < 14; k++)
      x[k] = x[k] * 0.625 + 1 / (1 + x[(k + 1) % 14]);
  }
  return Bytes(x, sizeof x);
}

struct Of128 {
  typedef uint64_t Vector __attribute__((vector_size(16)));
};

// Vectors keeps a dozen vectors busy. It is inlined into functions in which the
// compiler may use larger registers than elsewhere.
template <class Size>
__attribute__((always_inline)) inline uint64_t Vectors(uint64_t seed) {
  using Vector = typename Size::Vector;
  constexpr size_t kLanes = sizeof(Vector) / sizeof(uint64_t);
  Vector v[12];
  for (size_t k = 0; k < 12; k++) {
    for (size_t lane = 0; lane < kLanes; lane++) {
      v[k][lane] = seed + 31 * k + lane;
    }
  }
  for (int i = 0; i < 200'000; i++) {
    for (size_t k = 0; k < 12; k++) {
      v[k] = (v[k] << 3) + (v[(k + 5) % 12] ^ (v[k] >> 7));
    }
  }
  uint64_t hash = 0;
  for (size_t k = 0; k < 12; k++) {
    for (size_t lane = 0; lane < kLanes; lane++) hash = Mixed(hash, v[k][lane]);
  }
  return hash;
}

uint64_t Vectors128(uint64_t seed) { return Vectors<Of128>(seed); }

// Each mode gives sums of its own.
uint64_t RoundingModes(uint64_t seed) {
  const int before = std::fegetround();
  uint64_t hash = seed;
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST}) {
    std::fesetround(mode);
    volatile double third = static_cast<double>(1 + seed % 7) / 3;
    volatile long double tenth = static_cast<long double>(third) / 10;
    double sum = 0;
    long double longSum = 0;
    for (int i = 0; i < 20'000; i++) {
      sum = sum + third;
      longSum = longSum + tenth;
    }
    hash = Mixed(hash, std::bit_cast<uint64_t>(sum));
    hash = Mixed(hash, std::bit_cast<uint64_t>(static_cast<double>(longSum)));
    hash = Mixed(hash, std::fegetround() == mode);
  }
  std::fesetround(before);
  return hash;
}

// ---- Memory

uint64_t Strings(uint64_t seed) {
  Rng rng(seed);
  std::vector<std::string> words;
  uint64_t hash = seed;
  for (int i = 0; i < 1500; i++) {
    words.push_back(
        std::string(rng.Below(60), static_cast<char>('a' + i % 26)) +
        std::to_string(rng.Next()));
    if (words.size() > 40) {
      std::swap(words[rng.Below(40)], words.back());
      hash = Mixed(hash, Bytes(words.back().data(), words.back().size()));
      words.pop_back();
    }
  }
  for (const std::string& w : words)
    hash = Mixed(hash, Bytes(w.data(), w.size()));
  return hash;
}

uint64_t Blocks(uint64_t seed) {
  Rng rng(seed);
  struct Block {
    unsigned char* at = nullptr;
    size_t size = 0;
  } blocks[32];
  uint64_t hash = seed;
  for (int i = 0; i < 1500; i++) {
    Block& b = blocks[rng.Below(32)];
    if (b.at != nullptr) {
      hash = Mixed(hash, Bytes(b.at, std::min<size_t>(b.size, 64)));
    }
    std::free(b.at);
    b.size = 1 + rng.Below(rng.OneIn(20) ? 200'000 : 500);
    b.at = static_cast<unsigned char*>(std::malloc(b.size));
    if (b.at == nullptr) std::abort();
    std::memset(b.at, static_cast<int>(rng.Below(256)), b.size);
  }
  for (const Block& b : blocks) std::free(b.at);
  return hash;
}

uint64_t Sort(uint64_t seed) {
  Rng rng(seed);
  std::vector<uint64_t> v(6000);
  for (uint64_t& x : v) x = rng.Next();
  std::sort(v.begin(), v.end());
  return Bytes(v.data(), v.size() * sizeof v[0]);
}

constexpr size_t kCopied = 1 << 20;

// Copies copies a buffer four times. Before each further copy it makes a change
// that depends on the last copy.
template <class F>
uint64_t Copies(uint64_t seed, F copy) {
  std::vector<unsigned char> from(kCopied), to(kCopied);
  Rng rng(seed);
  for (size_t i = 0; i < kCopied; i += 4096)
    from[i] = static_cast<unsigned char>(rng.Next());
  for (int i = 0; i < 4; i++) {
    copy(to.data(), from.data(), kCopied);
    from[rng.Below(kCopied)] ^= to[rng.Below(kCopied)];
  }
  uint64_t hash = seed;
  for (size_t i = 0; i < kCopied; i += 8) {
    uint64_t word;
    std::memcpy(&word, &to[i], sizeof word);
    hash = Mixed(hash, word);
  }
  return hash;
}

uint64_t LibraryCopies(uint64_t seed) {
  return Copies(seed, [](void* to, const void* from, size_t n) {
    std::memcpy(to, from, n);
  });
}

// ---- The language and its library

uint64_t Regex(uint64_t seed) {
  const std::regex pattern("([a-z]+)=([0-9]+);(x|y)*");
  std::string text;
  Rng rng(seed);
  for (int i = 0; i < 600; i++) {
    text += "key=" + std::to_string(rng.Below(100'000)) + ";xyxy ";
  }
  uint64_t hash = seed;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end;
       it != end; ++it) {
    hash = Mixed(hash, static_cast<uint64_t>(it->position()));
    hash = Mixed(hash, std::stoull((*it)[2].str()));
  }
  return hash;
}

struct Depth {
  ~Depth() { *hash = Mixed(*hash, n); }
  uint64_t* hash;
  uint64_t n;
};

__attribute__((noinline)) void ThrowAt(uint64_t depth, uint64_t* hash) {
  const Depth here{hash, depth};
  if (depth == 0) throw std::runtime_error("bottom");
  try {
    ThrowAt(depth - 1, hash);
  } catch (const std::exception& e) {
    *hash = Mixed(*hash, std::strlen(e.what()));
    if (depth % 3 == 0) throw std::logic_error(std::to_string(depth));
    throw;
  }
}

uint64_t Exceptions(uint64_t seed) {
  uint64_t hash = seed;
  for (int i = 0; i < 30; i++) {
    try {
      ThrowAt(5 + (seed + static_cast<uint64_t>(i)) % 8, &hash);
    } catch (const std::exception& e) {
      hash = Mixed(hash, Bytes(e.what(), std::strlen(e.what())));
    }
    hash = Mixed(hash, static_cast<uint64_t>(std::uncaught_exceptions()));
  }
  return hash;
}

thread_local volatile uint64_t local;

// Data of the thread must belong to this goroutine for as long as it does not
// enter the runtime.
uint64_t ThreadLocals(uint64_t seed) {
  volatile int* const error = &errno;  // the thread stays the same
  *error = static_cast<int>(seed % 1000);
  local = seed;
  for (int i = 0; i < 100'000; i++) {
    local = Mixed(local, static_cast<uint64_t>(*error));
    *error = static_cast<int>(local % 1000);
  }
  return local;
}

[[noreturn]] __attribute__((noinline)) void JumpFrom(std::jmp_buf& to,
                                                     uint64_t depth) {
  volatile char room[64];
  room[depth % 64] = 1;
  if (depth == 0) std::longjmp(to, 1 + room[0] % 1);
  JumpFrom(to, depth - 1);
}

uint64_t Jumps(uint64_t seed) {
  volatile uint64_t hash = seed;
  volatile int i = 0;
  while (i < 100) {  // no more, as ASan looks through all frames after each
    std::jmp_buf here;
    const int came = setjmp(here);
    hash = Mixed(hash, static_cast<uint64_t>(came));
    if (came == 0) {
      for (int k = 0; k < 2000; k++) hash = Mixed(hash, seed);
      JumpFrom(here, hash % 16);
    }
    i = i + 1;
  }
  return hash;
}

#if defined(__x86_64__)

struct Of256 {
  typedef uint64_t Vector __attribute__((vector_size(32)));
};
struct Of512 {
  typedef uint64_t Vector __attribute__((vector_size(64)));
};

__attribute__((target("avx2"))) uint64_t Vectors256(uint64_t seed) {
  return Vectors<Of256>(seed);
}
__attribute__((target("avx512f"))) uint64_t Vectors512(uint64_t seed) {
  return Vectors<Of512>(seed);
}

// One instruction that takes as long as many, forwards and backwards.
uint64_t StringCopies(uint64_t seed) {
  return Copies(seed, [](unsigned char* to, const unsigned char* from,
                         size_t n) {
    size_t half = n / 2;
    const unsigned char* lastFrom = from + n - 1;
    unsigned char* lastTo = to + n - 1;
    size_t rest = n - half;
    asm volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(half) : : "memory");
    asm volatile("std\n\trep movsb\n\tcld"
                 : "+S"(lastFrom), "+D"(lastTo), "+c"(rest)
                 :
                 : "memory", "cc");
  });
}

// Missing returns how many pieces at the end of the list this machine lacks.
size_t Missing() {
  return __builtin_cpu_supports("avx512f") ? 0
         : __builtin_cpu_supports("avx2")  ? 1
                                           : 2;
}

#else

size_t Missing() { return 0; }

#endif

constexpr CheckedWork kWork[] = {
    {"IntegerRegisters", IntegerRegisters},
    {"LongDoubles", LongDoubles},
    {"Doubles", Doubles},
    {"Vectors128", Vectors128},
    {"RoundingModes", RoundingModes},
    {"Strings", Strings},
    {"Blocks", Blocks},
    {"Sort", Sort},
    {"LibraryCopies", LibraryCopies},
#if defined(__x86_64__)
    {"StringCopies", StringCopies},
#endif
    {"Regex", Regex},
    {"Exceptions", Exceptions},
    {"ThreadLocals", ThreadLocals},
    {"Jumps", Jumps},
#if defined(__x86_64__)
    // Pieces that not every machine can do, the rarest last.
    {"Vectors256", Vectors256},
    {"Vectors512", Vectors512},
#endif
};

}  // namespace

std::span<const CheckedWork> AllCheckedWork() {
  return std::span(kWork).first(std::size(kWork) - Missing());
}

CheckedResults::CheckedResults() {
  for (const CheckedWork& w : AllCheckedWork()) {
    for (uint64_t seed = 0; seed < kSeeds; seed++) {
      results_.push_back(w.step(seed));
    }
  }
}

}  // namespace gump::testing
