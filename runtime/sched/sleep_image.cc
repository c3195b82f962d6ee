// Chunks are carved from large reservations. A chunk that has become empty goes
// back to the kernel, except for its first page, and waits on a list for its
// next use.
#include "runtime/sched/sleep_image.h"

#include <sys/mman.h>

#include <new>

#include "absl/base/thread_annotations.h"
#include "runtime/sched/mlocks.h"
#include "runtime/sys/base.h"
#include "runtime/sys/keep_errno.h"
#include "runtime/sys/lock_futex.h"
#include "runtime/sys/os_linux.h"

namespace gump::rt {

namespace {

constexpr size_t kImageChunk = 64 << 10;
constexpr size_t kImageRegion = kModelBuild ? 4 * kImageChunk : 64 << 20;
constexpr size_t kImageStep = 32;  // between two size classes
constexpr size_t kImageClasses =
    (kSleepImageHeader + kSleepImageMost + kImageStep - 1) / kImageStep + 1;

// ImageChunk stands at the beginning of a chunk, which lies at a multiple of
// its size.
struct alignas(kImageStep) ImageChunk {
  ImageChunk* next = nullptr;  // on the list of its class, or on `empty`
  ImageChunk* prev = nullptr;
  SleepImage* free = nullptr;
  uint32_t size = 0;  // of an image, with its header
  uint32_t end = 0;   // where the next image is carved
  uint32_t live = 0;
};

struct ImageStore {
  Mutex lock{LockRank::kLeaf};
  // Chunks with room, by the class of their images.
  ImageChunk* open[kImageClasses] ABSL_GUARDED_BY(lock) = {};
  ImageChunk* empty ABSL_GUARDED_BY(lock) = nullptr;
  uintptr_t next ABSL_GUARDED_BY(lock) = 0;  // where a chunk is carved
  uintptr_t end ABSL_GUARDED_BY(lock) = 0;
  uint64_t bytes ABSL_GUARDED_BY(lock) = 0;
};
constinit ImageStore images;

bool hasRoom(const ImageChunk* c) {
  return c->free != nullptr || c->end + c->size <= kImageChunk;
}

void openChunk(ImageChunk* c) ABSL_EXCLUSIVE_LOCKS_REQUIRED(images.lock) {
  ImageChunk** head = &images.open[c->size / kImageStep];
  c->prev = nullptr;
  c->next = *head;
  if (*head != nullptr) (*head)->prev = c;
  *head = c;
}

void closeChunk(ImageChunk* c) ABSL_EXCLUSIVE_LOCKS_REQUIRED(images.lock) {
  if (c->prev != nullptr) {
    c->prev->next = c->next;
  } else {
    images.open[c->size / kImageStep] = c->next;
  }
  if (c->next != nullptr) c->next->prev = c->prev;
}

ImageChunk* newChunk(uint32_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(images.lock) {
  void* at = images.empty;
  if (at != nullptr) {
    images.empty = images.empty->next;
  } else {
    if (images.next == images.end) {
      const auto p =
          reinterpret_cast<uintptr_t>(sysReserve(kImageRegion + kImageChunk));
      if (p == 0) return nullptr;
      images.next = alignUp(p, kImageChunk);
      images.end = images.next + kImageRegion;
    }
    at = reinterpret_cast<void*>(images.next);
    images.next += kImageChunk;
  }
  auto* c = new (at) ImageChunk();
  c->size = size;
  c->end = sizeof(ImageChunk);
  images.bytes += kImageChunk;
  openChunk(c);
  return c;
}

void freeImage(SleepImage* image) ABSL_EXCLUSIVE_LOCKS_REQUIRED(images.lock) {
  const auto at = reinterpret_cast<uintptr_t>(image);
  auto* c = reinterpret_cast<ImageChunk*>(at & ~(kImageChunk - 1));
  if (!hasRoom(c)) openChunk(c);
  image->next = c->free;
  c->free = image;
  // The last chunk of a class stays open.
  if (--c->live > 0 || (c->next == nullptr && c->prev == nullptr)) return;
  closeChunk(c);
  images.bytes -= kImageChunk;
  const KeepErrno keep;
  madvise(reinterpret_cast<char*>(c) + kPageSize, kImageChunk - kPageSize,
          MADV_DONTNEED);
  c->next = images.empty;
  images.empty = c;
}

}  // namespace

SleepImage* sleepImageAlloc(size_t size) {
  const size_t whole = alignUp(kSleepImageHeader + size, kImageStep);
  LockScope scope(&images.lock);
  ImageChunk* c = images.open[whole / kImageStep];
  if (c == nullptr) c = newChunk(static_cast<uint32_t>(whole));
  if (c == nullptr) return nullptr;
  c->live++;
  void* at = c->free;
  if (at != nullptr) {
    c->free = c->free->next;
  } else {
    at = reinterpret_cast<char*>(c) + c->end;
    c->end += c->size;
  }
  if (!hasRoom(c)) closeChunk(c);
  return new (at) SleepImage();
}

void sleepImageFree(SleepImage* list) {
  while (list != nullptr) {
    // One at a time, so that a thread that needs an image need not wait.
    LockScope scope(&images.lock);
    SleepImage* image = list;
    list = image->next;
    freeImage(image);
  }
}

uint64_t sleepImageBytes() {
  LockScope scope(&images.lock);
  return images.bytes;
}

}  // namespace gump::rt
