// BubbleScope: the bubble of a synctest::Run.
#ifndef GUMP_INTERNAL_BUBBLE_SCOPE_H_
#define GUMP_INTERNAL_BUBBLE_SCOPE_H_

namespace gump::internal {

// BubbleScope makes the calling goroutine the root of a bubble.
class BubbleScope {
 public:
  BubbleScope();
  ~BubbleScope();
  BubbleScope(const BubbleScope&) = delete;
  BubbleScope& operator=(const BubbleScope&) = delete;
  // Run waits for the goroutines of the bubble.
  void Run();

 private:
  bool open_ = true;
};

}  // namespace gump::internal

#endif  // GUMP_INTERNAL_BUBBLE_SCOPE_H_
