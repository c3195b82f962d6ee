// Images: copies of the live bytes of stacks whose pages are away
// (hibernate.cc). They lie in chunks of one size class each.
#ifndef RUNTIME_SCHED_SLEEP_IMAGE_H_
#define RUNTIME_SCHED_SLEEP_IMAGE_H_

#include <cstddef>
#include <cstdint>

namespace gump::rt {

// SleepImage has the bytes [from, from + size) of a page. All other bytes of
// the page are dead.
struct SleepImage {
  uint16_t from = 0;
  uint16_t size = 0;
  uint32_t unused = 0;
  union {
    SleepImage* next;  // of an image that is free, or about to be
    unsigned char bytes[8];
  };
};
inline constexpr size_t kSleepImageHeader = 8;
inline constexpr size_t kSleepImageMost = 2368;  // bytes of a stack

// sleepImageAlloc returns an image with room for size bytes, which are at most
// kSleepImageMost. Returns nullptr if there is no memory.
// On: any.  P: either.  Locks: takes a leaf.  Parks: no.
[[nodiscard]] SleepImage* sleepImageAlloc(size_t size);
// sleepImageFree frees a list of images. It gives chunks that have become empty
// back to the kernel.
// On: any.  P: either.  Locks: takes a leaf.  Parks: no.
void sleepImageFree(SleepImage* list);
// sleepImageBytes is the size of all chunks that are in use.
// On: any.  P: either.  Locks: takes a leaf.  Parks: no.
[[nodiscard]] uint64_t sleepImageBytes();

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_SLEEP_IMAGE_H_
