// Hibernation: a goroutine that has been parked for long gives the pages of its
// stack away, and keeps only a copy of their live bytes, its image. It sleeps
// from then on until it is woken.
//
// The goroutine is parked, but its stack is not at rest. Other threads may
// touch it at any time without the runtime's knowledge:
//  * a waker reads and writes a Sudog there, or the element that it points at,
//    perhaps with a lock of the runtime held;
//  * a goroutine or a plain thread uses a variable that it has captured by
//    reference;
//  * the kernel fills a buffer there, in a call of another thread;
//  * a dump, a profile, a signal handler or a debugger walks the frames.
// So arenas with a stack that is away are watched by userfaultfd. A thread
// that touches a missing page sleeps in the kernel until the page is there. One
// thread of ours, gump-faults, answers.
//
// The bytes are at any time in exactly one of three places: in the page, in a
// private page of the thread that takes it away (scratch), or in the image. The
// steps of hibernateStack are:
//   1. hold gp's scan bit, lock the slot's word, watch the arena;
//   2. move the page to a scratch page. The kernel does so in one step. It
//      refuses if it has pinned the page for I/O, its own or a device's. So
//      each write of any thread is in the bytes that arrive, or it faults;
//   3. copy the live bytes to the image, and drop the scratch page;
//   4. set kGhibernated, and store the image in the word, which unlocks it.
// To bring the page back, a thread locks the word and copies the image to the
// page, which the kernel also does in one step: no thread sees a page that is
// half filled. After that the page is the truth and the image is worthless. The
// lock of the word makes sure that the image is copied once: a second copy
// would undo what was written since. (The kernel refuses it, besides.)
//
// Three threads bring a page back:
//  * the waker of the goroutine (wakeStack), when the status has left
//    kGwaiting. So a goroutine that runs has its stack. It also frees the
//    image;
//  * a waker, before it touches a Sudog there (bringNear). Otherwise it would
//    fault, and sleep for two thread switches. It may hold the lock of a
//    channel, but holds no word. So it may wait for a word as wakeStack does;
//  * gump-faults (answerFault), for any other thread.
// bringNear and answerFault only mark the word kAnswered. The goroutine stays
// parked and kGhibernated, and a later pass may take the page away again.
//
// Why no thread sleeps for ever in a fault.
//  * gump-faults holds no lock of the runtime's and waits for none, since the
//    thread that faults may hold any. It touches no stack of an arena, and
//    takes no signal, whose handler might. If the word is locked, it keeps the
//    fault for later and answers others.
//  * The holders of words (hibernateStack, wakeStack, bringNear, freeTable and
//    sweep) run on stacks of watched arenas. They may themselves fault, for a
//    page that they have never used. The answer to that fault needs the word of
//    their own slot, which no thread holds: their own goroutines run. A holder
//    locks only words of stacks that it has seen away, or of a goroutine that
//    it has just woken or holds by the scan bit.
//  * Waits do not form a circle. A thread that holds the word of a stack that
//    is away was awake before that stack went.
//  * Holders take no signal, because a handler of the program may touch the
//    stack of that very slot (NoSignals).
//  * An arena that is unmapped keeps its words locked for good
//    (hibernateForget).
//
// ThreadSanitizer is left out: its functions touch the program's memory while
// they hold locks, and gump-faults calls such functions.
//
// What else faults. In a watched arena each first use of a page does, so
// answerFault gives zeros for each page that has no image. It does that under
// the lock of the word, too, because a fault may be old: the thread that
// faulted has taken a signal, and another thread has brought the page. Without
// the lock, the goroutine might park and hibernate between the look at the word
// and the page of zeros. The zeros would then take the place of its bytes. When
// no stack of an arena is away, a pass ends the watch.
//
// Wake-ups. A waker finds kGhibernated by the comparison that each transition
// makes anyway (casgstatus), so hibernation costs nothing when it is off. The
// bit is set under the scan bit, for which the waker waits, so wakeStack sees
// the word of the same sleep. No scan bit can be set once the status has left
// kGwaiting, so the stack stays.
//
// fork. The child has no gump-faults, and its pages are not watched. Its only
// thread copies all images to the pages that are missing in the child
// (hibernateInChild). The kernel copies the memory of the parent piece by piece
// while other threads run, so the child may see the word of a moment before or
// after that of the page. So while a thread forks, no page is taken away, and a
// page that comes back leaves its image (kAnswered) where it is:
//  * a page that is missing in the child was missing when the kernel came to
//    it, so its image was and is right, even with kAnswered;
//  * a page that is there is the truth.
// The thread that forks waits for threads that are between the look at
// `forking` and the end of their step (inStep); these wait for no lock that a
// program can hold.
//
// Page tables. A page table maps 2 MiB, and so some eight stacks. If all of
// them are away, only their guards keep it in use. The steps of freeTable are:
//   1. lock the words of all these slots, and see that each stack is away;
//   2. remove the guards and drop the range. The kernel then frees the table;
//   3. note in the words that the guards are missing (kUnguarded).
// No goroutine runs on such a slot before its page comes back. bringBack
// installs the guard first, with the word locked. freeTable waits for no word,
// so the order of the locks does not matter.
//
// hibernate_pass.cc has the rest: which goroutines sleep, and when.
//
// Rejected:
//  * Faults for the waker, too. It would sleep once for each goroutine that it
//    wakes, and gump-faults is one thread.
//  * A SIGBUS handler in place of a thread: calls of the kernel would fail.
//  * Watching each slot on its own: two mappings for each goroutine, of the
//    65,530 that a process may have.
#include "runtime/sched/hibernate.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/base/thread_annotations.h"
#include "gump/internal/linkname.h"
#include "runtime/diag/panic.h"
#include "runtime/diag/stats.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sched/runtime2.h"
#include "runtime/sched/sleep_image.h"
#include "runtime/sched/stack_arena.h"
#include "runtime/sys/mem.h"
#include "runtime/sys/os_linux.h"
#include "runtime/sys/raw_syscall.h"
#include "runtime/sys/userfault_linux.h"

namespace gump::rt {

HibernateHint hibernateHint;

namespace {

// A word is 0 if the stack is awake, or the address of an image, with these
// bits.
constexpr uintptr_t kLocked = 1;
constexpr uintptr_t kAnswered = 2;  // the page is there; the image is worthless
constexpr uintptr_t kUnguarded = 4;  // the page is away, and the guard, too
constexpr uintptr_t kWordBits = 15;  // zero in the address of an image

SleepImage* imageOf(uintptr_t word) {
  return reinterpret_cast<SleepImage*>(word & ~kWordBits);
}
// isAway returns true if the page is missing, and the image is the truth.
bool isAway(uintptr_t word) {
  return imageOf(word) != nullptr && (word & kAnswered) == 0;
}

constexpr uintptr_t kBelowSP = 128;    // the red zone
constexpr uintptr_t kMostLive = 2048;  // bytes of frames
static_assert(kBelowSP + kMostLive + kTopReserve <= kSleepImageMost);

// ---- Pages of our own -------------------------------------------------------

// PagePool lends single pages for a few microseconds.
class PagePool {
 public:
  // Called once, before the others.
  [[nodiscard]] bool map() {
    base_ = reinterpret_cast<uintptr_t>(sysReserve(kPages * kPageSize));
    return base_ != 0;
  }
  uintptr_t base() const { return base_; }
  static constexpr size_t size() { return kPages * kPageSize; }
  // take returns a page that no other thread uses, and waits until there is
  // one.
  uintptr_t take() {
    for (int spins = 0;; spins++) {
      const uint32_t used = used_.load(relaxed);  // the cas decides
      for (uint32_t i = 0; i < kPages; i++) {
        if ((used >> i & 1u) != 0) continue;
        // Pairs with give: the page is as the last user left it.
        if (used_.cas(used, used | 1u << i, acquire)) {
          return base_ + i * kPageSize;
        }
        break;
      }
      if (spins > 100) osyield();
    }
  }
  void give(uintptr_t page) {
    used_.and_(~(1u << ((page - base_) / kPageSize)), release);  // as in take
  }

 private:
  static constexpr uint32_t kPages = kModelBuild ? 2 : 32;
  uintptr_t base_ = 0;
  Atomic<uint32_t> used_;
};
// scratch is watched, and holds the pages that are being taken away. fill is
// for those that come back. gump-faults has a page of its own for these: while
// it waits for one, the holders of all others may wait for its answer.
constinit PagePool scratch;
constinit PagePool fill;
uintptr_t answerPage;

// ---- The words --------------------------------------------------------------

constinit Mutex watchLock{LockRank::kLeaf};
constinit SleepWords* allWords ABSL_GUARDED_BY(watchLock) = nullptr;

// Slot is a slot of an arena, with its word.
struct Slot {
  SleepWords* words = nullptr;
  Atomic<uintptr_t>* word = nullptr;
  uintptr_t base = 0;  // the address of the guard
  uintptr_t top = 0;   // the address of the top page
};

// slotAt returns the slot in which addr lies. words is nullptr if no goroutine
// of the arena has hibernated yet.
Slot slotAt(const Arena* a, uintptr_t addr) {
  Slot s;
  SleepWords* words = a->sleepWords.load(acquire);  // pairs with wordsFor
  if (words == nullptr) return s;
  const size_t i = (addr - a->base) / a->stride;
  s.words = words;
  s.word = &words->words[i];
  s.base = slotBase(a, static_cast<uint32_t>(i));
  s.top = s.base + a->stride - kTopSize;
  return s;
}

// wordsFor makes the words of an arena. Returns nullptr if there is no memory.
SleepWords* wordsFor(Arena* a) ABSL_EXCLUSIVE_LOCKS_REQUIRED(watchLock) {
  SleepWords* words = a->sleepWords.load(relaxed);  // written under the lock
  if (words != nullptr) return words;
  static_assert(sizeof(SleepWords) % alignof(SleepWords) == 0);
  const size_t size =
      sizeof(SleepWords) + size_t{a->nslots} * sizeof(Atomic<uintptr_t>);
  // Memory of the kernel is zero, which is what the words have to be.
  void* p = sysReserve(alignUp(size, kPageSize));
  if (p == nullptr) return nullptr;
  words = new (p) SleepWords();
  words->arena = a;
  words->next = allWords;
  allWords = words;
  a->sleepWords.store(words, release);  // pairs with slotAt
  return words;
}

// watch watches an arena. Returns false if that cannot be done.
bool watch(Arena* a) {
  SleepWords* words = a->sleepWords.load(acquire);  // pairs with wordsFor
  // Only a pass ends a watch, when it has visited all goroutines.
  if (words != nullptr && words->watched.load(acquire)) return true;
  LockScope l(&watchLock);
  words = wordsFor(a);
  if (words == nullptr) return false;
  if (words->watched.load(relaxed)) return true;  // written under the lock
  if (userfaultWatch(a->base, alignUp(a->size, kPageSize)) != 0) return false;
  words->watched.store(true, release);  // pairs with the load above
  return true;
}

// lockWord locks a word, and returns what it was.
uintptr_t lockWord(Atomic<uintptr_t>* word) {
  constexpr int kSpins = kModelBuild ? 0 : 1000;
  for (int spins = 0;; spins++) {
    const uintptr_t w = word->load(relaxed);  // the cas decides
    // Pairs with the release of the holder before us: we see its image.
    if ((w & kLocked) == 0 && word->cas(w, w | kLocked, acquire)) return w;
    if (spins < kSpins) {
      procyield(1);
    } else {
      usleep(20);
    }
  }
}

// tryLockWord is lockWord that does not wait. Returns false if it is locked.
bool tryLockWord(Atomic<uintptr_t>* word, uintptr_t* w) {
  *w = word->load(relaxed);  // as in lockWord
  return (*w & kLocked) == 0 && word->cas(*w, *w | kLocked, acquire);
}

// ---- Page tables ------------------------------------------------------------

constexpr size_t kTableSpan = size_t{1} << 21;  // the memory of a page table
static_assert(kArenaSize / kTableSpan + 1 <= 64);

// firstTable is where the memory of the arena's first page table begins.
uintptr_t firstTable(const Arena* a) { return a->base & ~(kTableSpan - 1); }

// noteTables notes that the stack of a slot goes away.
void noteTables(const Slot& slot) {
  const uintptr_t first = firstTable(slot.words->arena);
  Atomic<uint64_t>* tables = &slot.words->tables;
  for (uintptr_t k = (slot.base - first) / kTableSpan;
       k <= (slot.top - first) / kTableSpan; k++) {
    // Relaxed: hibernateTidy runs after all visits of the pass.
    if ((tables->load(relaxed) >> k & 1u) == 0) {
      tables->or_(uint64_t{1} << k, relaxed);
    }
  }
}

// allAway returns true if the stacks of slots first to last are away. That is a
// hint, unless their words are locked.
bool allAway(const SleepWords* words, uint32_t first, uint32_t last) {
  for (uint32_t i = first; i <= last; i++) {
    if (!isAway(words->words[i].load(relaxed))) return false;
  }
  return true;
}

// ---- Images that are no longer needed ---------------------------------------

// A stack that wakers push to, and that a pass takes as a whole.
Atomic<SleepImage*> oldImages;

void discard(SleepImage* image) {
  SleepImage* head = oldImages.load(relaxed);  // the cas decides
  do {
    image->next = head;
  } while (!oldImages.casWeak(head, image, release));  // pairs with the xchg
}

// ---- fork -------------------------------------------------------------------

Atomic<int32_t> forking;  // threads that are forking
Atomic<int32_t> inStep;   // threads that may take images away, or pages
// An image stayed in a word of a stack that is awake.
Atomic<bool> imagesKept;

// beginStep returns false if a thread is forking.
bool beginStep() {
  // seq_cst: we store inStep and load forking. hibernateBeforeFork does the
  // reverse, so one of us sees the other.
  inStep.add(1, seq_cst);
  if (forking.load(seq_cst) == 0) return true;
  inStep.add(-1, release);
  return false;
}
void endStep() { inStep.add(-1, release); }  // pairs with hibernateBeforeFork

// ---- Bringing a page back ---------------------------------------------------

// fatalHere ends the process. It prints no stacks: they may be away, and this
// may be the thread that brings them back.
[[noreturn]] void fatalHere(const char* what, int err) {
  if (kModelBuild) fatalthrow(what);
  printf("fatal error: hibernation: %s (errno=%d)\n", what, err);
  _exit(2);
}

// copyBack copies an image to the page at top, by way of a page of our own.
// Returns false if there is no memory, or if the mappings are changing.
bool copyBack(const SleepImage* image, uintptr_t top, uintptr_t page) {
  auto* bytes = reinterpret_cast<unsigned char*>(page);
  std::memset(bytes, 0, image->from);
  std::memcpy(bytes + image->from, image->bytes, image->size);
  const size_t end = size_t{image->from} + image->size;
  std::memset(bytes + end, 0, kPageSize - end);
  switch (const int err = userfaultCopy(top, bytes)) {
    case 0:
    case ESRCH:  // the process ends
      return true;
    case EAGAIN:
    case ENOMEM:
    case EINTR:
      return false;
    default:
      fatalHere("a stack cannot come back", err);
  }
}

// bringGuard brings the guard of a slot back. The caller has locked the word,
// and *w is its value. Returns false if there is no memory.
bool bringGuard(const Slot& slot, uintptr_t* w) {
  const int err = restoreGuard(slot.base);
  if (err == EAGAIN || err == ENOMEM || err == EINTR) return false;
  if (err != 0) fatalHere("a guard cannot come back", err);
  *w &= ~kUnguarded;
  return true;
}

// bringBack brings the page of a slot back, and its guard. The caller has
// locked the word, and *w is its value. Returns false as copyBack does.
bool bringBack(const Slot& slot, uintptr_t* w, uintptr_t page) {
  if ((*w & kUnguarded) != 0 && !bringGuard(slot, w)) return false;
  return copyBack(imageOf(*w), slot.top, page);
}

// NoSignals blocks all signals of the thread in its scope. A handler of the
// program may touch the very stack whose word the thread has locked, or call
// fork within a step. It would wait for its own thread.
class NoSignals {
 public:
  NoSignals() { change(SIG_BLOCK, ~uint64_t{0}, &before_); }
  ~NoSignals() { change(SIG_SETMASK, before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  static void change(int how, uint64_t set, uint64_t* old) {
    if (kModelBuild) return;
    (void)rawSyscall(SYS_rt_sigprocmask, how, asArg(&set), asArg(old),
                     sizeof(set), 0, 0);
  }

  uint64_t before_ = 0;
};

}  // namespace

bool hibernatePages() {
  answerPage = reinterpret_cast<uintptr_t>(sysReserve(kPageSize));
  return answerPage != 0 && scratch.map() && fill.map() &&
         userfaultWatch(scratch.base(), PagePool::size()) == 0;
}

// ---- The protocol -----------------------------------------------------------

bool hibernateStack(G* gp) {
  const uintptr_t from = gp->sched.sp - kBelowSP;
  const uintptr_t end = gp->stack.hi + sizeof(StackTop);
  const uintptr_t top = gp->stack.hi & ~(kPageSize - 1);
  if (from < top || gp->stack.hi - gp->sched.sp > kMostLive) return false;
  Arena* a = arenaOf(top);
  if (a == nullptr || a->order > kMaxArenaOrder || !watch(a)) return false;
  const Slot slot = slotAt(a, top);
  uintptr_t w;
  // A hint, which saves the work below.
  if (isAway(slot.word->load(relaxed))) return false;
  SleepImage* image = sleepImageAlloc(end - from);
  if (image == nullptr) return false;
  image->from = static_cast<uint16_t>(from - top);
  image->size = static_cast<uint16_t>(end - from);
  const NoSignals block;
  const bool step = beginStep();
  const bool locked = step && tryLockWord(slot.word, &w);
  if (!locked || isAway(w)) {
    if (locked) slot.word->store(w, release);  // unlocks
    if (step) endStep();
    discard(image);
    return false;
  }
  (void)stackGiveBack(gp);  // the pages below the top one
  const uintptr_t page = scratch.take();
  const bool moved = userfaultMove(page, top) == 0;
  if (moved) {
    std::memcpy(image->bytes, reinterpret_cast<void*>(page + image->from),
                image->size);
    (void)userfaultDrop(page, kPageSize);
    slot.words->asleep.add(1, relaxed);  // before the page can come back
    Atomic<bool>* hint = &hibernateHint.stacksAway;
    if (!hint->load(relaxed)) hint->store(true, relaxed);
    noteTables(slot);
    // Under the scan bit. The release of that bit publishes it.
    gp->atomicstatus.or_(kGtracked | kGhibernated, relaxed);
    // Unlocks. Pairs with lockWord.
    slot.word->store(reinterpret_cast<uintptr_t>(image), release);
    image = imageOf(w);
  } else {
    slot.word->store(w, release);  // unlocks
  }
  scratch.give(page);
  if (image != nullptr) discard(image);
  endStep();
  return moved;
}

void wakeStack(const G* gp) {
  const uintptr_t top = gp->stack.hi & ~(kPageSize - 1);
  const Slot slot = slotAt(arenaOf(top), top);
  const NoSignals block;
  // Others hold the lock for the time of a few calls.
  uintptr_t w = lockWord(slot.word);
  SleepImage* image = imageOf(w);
  if (isAway(w)) {
    const uintptr_t page = fill.take();
    // There is no other way than to wait for memory, as for any page fault.
    while (!bringBack(slot, &w, page)) usleep(50);
    fill.give(page);
    slot.words->asleep.add(-1, release);  // pairs with unwatch
  }
  if (image == nullptr || !beginStep()) {
    if (image != nullptr) imagesKept.store(true, relaxed);
    slot.word->store(image == nullptr ? 0 : w | kAnswered, release);
    return;
  }
  slot.word->store(0, release);  // unlocks; pairs with lockWord
  discard(image);
  endStep();
}

bool freeTable(SleepWords* words, uint32_t first, uint32_t last, uintptr_t at,
               size_t n) {
  if (!allAway(words, first, last)) return false;
  const NoSignals block;
  if (!beginStep()) return false;
  uint32_t locked = first;
  uintptr_t w;
  while (locked <= last && tryLockWord(&words->words[locked], &w)) locked++;
  // The first drop finds out whether the range may be dropped at all.
  const bool freed = locked > last && allAway(words, first, last) &&
                     userfaultDrop(at, n) && removeGuards(at, n);
  if (freed) (void)userfaultDrop(at, n);
  for (uint32_t i = first; i < locked; i++) {
    const uintptr_t guard = slotBase(words->arena, i);
    const bool inside = guard + kGuardSize > at && guard < at + n;
    w = words->words[i].load(relaxed);  // locked
    // Unlocks. Pairs with lockWord.
    words->words[i].store((w & ~kLocked) | (freed && inside ? kUnguarded : 0),
                          release);
  }
  endStep();
  return freed;
}

void bringNear(const void* p) {
  const uintptr_t page = reinterpret_cast<uintptr_t>(p) & ~(kPageSize - 1);
  const Arena* a = arenaOf(page);
  if (a == nullptr) return;
  // Memory of a foreign thread may lie behind a small arena.
  if (page >= slotBase(a, a->nslots)) return;
  const Slot slot = slotAt(a, page);
  // A hint: the stack may be on its way out, and then we fault.
  if (slot.words == nullptr || !isAway(slot.word->load(relaxed))) return;
  const NoSignals block;
  uintptr_t w = lockWord(slot.word);
  if (isAway(w)) {
    const uintptr_t own = fill.take();
    if (bringBack(slot, &w, own)) {
      slot.words->asleep.add(-1, release);  // pairs with unwatch
      w |= kAnswered;
    }
    fill.give(own);
  }
  slot.word->store(w, release);  // unlocks; pairs with lockWord
}

bool answerFault(uintptr_t page) {
  const Arena* a = arenaOf(page);
  const Slot slot = a == nullptr ? Slot() : slotAt(a, page);
  if (slot.words == nullptr) {
    // The arena of the fault has been unmapped meanwhile. If there is another
    // one now, its first stack may be on its way out, so there must be no page
    // of zeros. A thread that waits here after all comes again.
    userfaultWake(page);
    return true;
  }
  uintptr_t w;
  if (!tryLockWord(slot.word, &w)) return false;
  // If there is no memory, or the mappings are changing, it is tried again: the
  // thread sleeps until this page is answered.
  bool answered;
  if (page == slot.top && isAway(w)) {
    answered = bringBack(slot, &w, answerPage);
    if (answered) {
      slot.words->asleep.add(-1, release);  // pairs with unwatch
      stats.stackFaults.add(1, relaxed);    // a figure
      hibernateSoon();
      w |= kAnswered;
    }
  } else if ((w & kUnguarded) != 0 && page < slot.base + kGuardSize) {
    // A thread overruns the stack of the slot below upwards. It faults again at
    // the guard, and dies of that.
    answered = bringGuard(slot, &w);
    if (answered) userfaultWake(page);
  } else {
    const int err = userfaultZero(page);
    answered = err == 0 || err == ESRCH;
  }
  slot.word->store(w, release);  // unlocks; pairs with lockWord
  return answered;
}

[[noreturn]] void answerFaults() {
  // The pages that wait for the holders of their words. One answer wakes all
  // threads that wait for a page, so each page is kept once. A holder may wait
  // for an answer itself, so we must always read on. It holds the word for the
  // time of a few calls.
  constexpr size_t kMost = 512;
  static uintptr_t faults[kMost];
  for (size_t n = 0;;) {
    const size_t end =
        n + userfaultNext(faults + n, kMost - n, /*wait=*/n == 0);
    size_t kept = 0;
    for (size_t i = 0; i < end; i++) {
      const uintptr_t page = faults[i];
      if (std::find(faults, faults + kept, page) != faults + kept) continue;
      if (!answerFault(page)) faults[kept++] = page;
    }
    n = kept;
    if (n > 0) osyield();
    if (n == kMost) fatalHere("too many threads wait for stacks", 0);
  }
}

// ---- What passes leave behind -----------------------------------------------

namespace {
// sweep discards the images that stayed in words because of a fork.
void sweep(SleepWords* words) {
  const Arena* a = words->arena;
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  for (uint32_t i = 0; i < a->nslots; i++) {
    Atomic<uintptr_t>* word = &words->words[i];
    uintptr_t w = word->load(relaxed);  // the lock decides
    if ((w & kAnswered) == 0) continue;
    if (here - slotBase(a, i) < a->stride) {
      // A push could need a page of this stack, and so the word.
      imagesKept.store(true, relaxed);
      continue;
    }
    const NoSignals block;
    if (!tryLockWord(word, &w)) continue;
    const bool old = (w & kAnswered) != 0 && beginStep();
    word->store(old ? 0 : w, release);  // unlocks
    if (!old) continue;
    discard(imageOf(w));
    endStep();
  }
}

// freeTables frees the page tables of which all stacks are away. The memory of
// the first and the last may belong to others, too.
void freeTables(SleepWords* words) {
  if (!guardsAreMarks()) return;
  const Arena* a = words->arena;
  const uint64_t tables = words->tables.load(relaxed);  // as in noteTables
  for (uint32_t k = 0; tables >> k != 0; k++) {
    const uintptr_t at = firstTable(a) + k * kTableSpan;
    const uintptr_t end = at + kTableSpan;
    if ((tables >> k & 1u) == 0 || at < a->base || end > a->base + a->size) {
      continue;
    }
    const size_t first = (at - a->base) / a->stride;
    const size_t last = (end - 1 - a->base) / a->stride;
    M* mp = acquirem();
    const bool freed = freeTable(
        words, static_cast<uint32_t>(first),
        std::min(static_cast<uint32_t>(last), a->nslots - 1), at, kTableSpan);
    releasem(mp);
    if (freed) {
      words->tables.and_(~(uint64_t{1} << k), relaxed);
      stats.stackTables.add(1, relaxed);  // a figure
    }
  }
}

// unwatch ends the watch of an arena in which no stack is away.
void unwatch(SleepWords* words) {
  // Only a pass adds to `asleep`. Pairs with the decrement: all pages that were
  // away are back.
  if (!words->watched.load(relaxed) || words->asleep.load(acquire) != 0) return;
  words->watched.store(false, relaxed);
  // If the arena has been unmapped since, no arena at these addresses is
  // watched: only a pass begins to watch one.
  const Arena* a = words->arena;
  (void)userfaultUnwatch(a->base, alignUp(a->size, kPageSize));
}
}  // namespace

bool hibernateImagesLeft() { return oldImages.load(relaxed) != nullptr; }

void hibernateTidy() {
  const bool kept = imagesKept.xchg(false, relaxed);
  SleepWords* words;
  {
    LockScope l(&watchLock);
    words = allWords;
  }
  bool watched = false;
  for (; words != nullptr; words = words->next) {
    if (words->gone.load(acquire)) continue;  // pairs with hibernateForget
    if (kept) sweep(words);
    freeTables(words);
    unwatch(words);
    watched |= words->watched.load(relaxed);  // written by passes
  }
  if (!watched) hibernateHint.stacksAway.store(false, relaxed);
  sleepImageFree(oldImages.xchg(nullptr, acquire));  // pairs with discard
}

void hibernateForget(Arena* a) {
  SleepWords* words = a->sleepWords.load(relaxed);  // no slot is in use
  if (words == nullptr) return;
  // For good: an answer to an old fault may still be on its way. It is here
  // before us, or it finds the word locked and looks for the arena again.
  for (uint32_t i = 0; i < a->nslots; i++) (void)lockWord(&words->words[i]);
  words->watched.store(false, relaxed);
  words->gone.store(true, release);  // pairs with hibernateEnd
}

// ---- fork -------------------------------------------------------------------

void hibernateBeforeFork() {
  forking.add(1, seq_cst);  // see beginStep
  // Pairs with endStep: what those threads did is in the memory that is copied.
  while (inStep.load(seq_cst) != 0) usleep(20);
}

void hibernateAfterFork() { forking.add(-1, release); }

namespace {
// isThere returns true if the child has a page at this address, by the bits
// "present" and "swapped" of its pagemap.
bool isThere(int pagemap, uintptr_t page) {
  uint64_t bits = 0;
  constexpr int kShift = 62;
  return rawSyscall(SYS_pread64, pagemap, asArg(&bits), sizeof(bits),
                    static_cast<long>(page / kPageSize * sizeof(bits)), 0,
                    0) == sizeof(bits) &&
         bits >> kShift != 0;
}
}  // namespace

void hibernateInChild() ABSL_NO_THREAD_SAFETY_ANALYSIS {  // the only thread
  // A thread of the parent may have been in beginStep while this word was
  // copied. The child may fork as well.
  inStep.store(0, relaxed);
  forking.store(0, relaxed);
  if (allWords == nullptr) return;
  static constexpr char kPagemap[] = "/proc/self/pagemap";
  const auto pagemap = static_cast<int>(rawSyscall(
      SYS_openat, AT_FDCWD, asArg(kPagemap), O_RDONLY | O_CLOEXEC, 0, 0, 0));
  for (SleepWords* words = allWords; words != nullptr; words = words->next) {
    if (words->gone.load(relaxed)) continue;
    const Arena* a = words->arena;
    for (uint32_t i = 0; i < a->nslots; i++) {
      const uintptr_t w = words->words[i].load(relaxed);
      const SleepImage* image = imageOf(w);
      if (image == nullptr) continue;
      const uintptr_t top = slotBase(a, i) + a->stride - kTopSize;
      if (pagemap >= 0 ? isThere(pagemap, top) : !isAway(w)) continue;
      std::memcpy(reinterpret_cast<void*>(top + image->from), image->bytes,
                  image->size);
    }
  }
  if (pagemap >= 0) (void)rawSyscall(SYS_close, pagemap, 0, 0, 0, 0, 0);
}

}  // namespace gump::rt
