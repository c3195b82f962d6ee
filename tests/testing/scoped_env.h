// An environment variable with another value for a while.
#ifndef TESTS_TESTING_SCOPED_ENV_H_
#define TESTS_TESTING_SCOPED_ENV_H_

#include <cstdlib>
#include <optional>
#include <string>

namespace gump::testing {

// ScopedEnv restores the variable when it goes. Children of death tests inherit
// the value.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    Set(value);
  }
  ~ScopedEnv() {
    if (old_) {
      Set(old_->c_str());
    } else {
      unsetenv(name_);
    }
  }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

  void Set(const char* value) { setenv(name_, value, /*overwrite=*/1); }

 private:
  const char* const name_;
  std::optional<std::string> old_;
};

}  // namespace gump::testing

#endif  // TESTS_TESTING_SCOPED_ENV_H_
