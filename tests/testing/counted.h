// An element type that counts its own lives: every value must be destroyed
// exactly once, wherever a channel took it.
#ifndef TESTS_TESTING_COUNTED_H_
#define TESTS_TESTING_COUNTED_H_

#include <atomic>
#include <utility>

#include "gtest/gtest.h"

namespace gump::testing {

// Counted is move-only and not default-constructible. A moved-from Counted is a
// shell: its destruction is checked but not counted as a value's.
class Counted {
 public:
  explicit Counted(int n) : n_(n) {
    values_.fetch_add(1);
    objects_.fetch_add(1);
  }
  Counted(Counted&& o) noexcept
      : n_(o.n_), full_(std::exchange(o.full_, false)) {
    EXPECT_EQ(o.self_, &o) << "moved from raw memory";
    objects_.fetch_add(1);
  }
  Counted& operator=(Counted&& o) noexcept {
    if (this == &o) return *this;
    if (full_) values_.fetch_sub(1);
    n_ = o.n_;
    full_ = std::exchange(o.full_, false);
    return *this;
  }
  ~Counted() {
    EXPECT_EQ(self_, this) << "destroyed twice, or never made";
    self_ = nullptr;
    if (full_) values_.fetch_sub(1);
    objects_.fetch_sub(1);
  }
  int n() const { return n_; }
  bool full() const { return full_; }

  // Values and objects (values and shells) that exist now.
  static int values() { return values_.load(); }
  static int objects() { return objects_.load(); }

 private:
  inline static std::atomic<int> values_{0};
  inline static std::atomic<int> objects_{0};
  int n_;
  bool full_ = true;
  const Counted* self_ = this;
};

}  // namespace gump::testing

#endif  // TESTS_TESTING_COUNTED_H_
