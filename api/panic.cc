// PanicError, and the record of the panic in flight.
//
// A destructor that throws while the stack is being unwound ends the process.
// The report should then name both exceptions. But C++ does not tell a
// destructor which exception is unwinding it. So panic() leaves a record with
// the goroutine: its text, and the number of exceptions that were in flight
// before it. The record is over when the exception object is destroyed, on any
// goroutine. The records of a goroutine are a stack, with greater numbers
// towards the top. A new record first removes each one with a number that is
// not smaller, because its panic was recovered long ago. The panic in flight
// has a record that is not over. Its number is one less than the number of
// exceptions in flight.
#include "gump/panic.h"

#include <exception>
#include <utility>

#include "gump/defer.h"
#include "gump/internal/atomic.h"
#include "gump/internal/linkname_gls.h"
#include "gump/internal/linkname_panic.h"

namespace gump {

namespace internal {

struct PanicRecord {
  std::string text;
  int uncaught = 0;       // number of exceptions in flight when it was thrown
  rt::Atomic<bool> over;  // set by ~PanicError, read by the panicking goroutine
  std::shared_ptr<PanicRecord> outer;  // has a smaller number; or null
};

}  // namespace internal

namespace {

using RecordPtr = std::shared_ptr<internal::PanicRecord>;

constexpr char kRecordKey = 0;  // its address is the goroutine-local key

// KeepRecord puts r on top of the current goroutine's records. If glsSet has no
// memory, r is not kept, and a report will contain less. Throws std::bad_alloc.
void KeepRecord(const RecordPtr& r) {
  if (void* p = rt::glsGet(&kRecordKey)) {
    RecordPtr& top = *static_cast<RecordPtr*>(p);
    while (top != nullptr && top->uncaught >= r->uncaught) top = top->outer;
    r->outer = std::move(top);
    top = r;
    return;
  }
  auto top = std::make_unique<RecordPtr>(r);
  if (rt::glsSet(&kRecordKey, top.get(),
                 [](void* p) { delete static_cast<RecordPtr*>(p); })) {
    static_cast<void>(top.release());
  }
}

// TextInFlight returns the text of the panic that was the n-th exception in
// flight.
std::string TextInFlight(int n) {
  if (void* p = rt::glsGet(&kRecordKey)) {
    for (const internal::PanicRecord* r = static_cast<RecordPtr*>(p)->get();
         r != nullptr; r = r->outer.get()) {
      // Acquire: pairs with ~PanicError.
      if (r->uncaught + 1 == n && !r->over.load(rt::acquire)) return r->text;
    }
  }
  return "exception";
}

}  // namespace

PanicError::PanicError(const std::string& what) : std::runtime_error(what) {}

PanicError::PanicError(const std::string& what, RecordPtr record)
    : std::runtime_error(what), record_(std::move(record)) {
  KeepRecord(record_);  // last: if it throws, there is no PanicError
}

// A copy is not the exception object that was thrown, so it has no record.
PanicError::PanicError(const PanicError& other) noexcept
    : std::runtime_error(other) {}

PanicError::~PanicError() {
  // Release: pairs with TextInFlight, although no data depends on the flag.
  if (record_ != nullptr) record_->over.store(true, rt::release);
}

void panic(std::string_view msg) {
  auto record = std::make_shared<internal::PanicRecord>();
  record->text = msg;
  record->uncaught = std::uncaught_exceptions();
  const std::string& text = record->text;
  throw PanicError(text, std::move(record));
}

void internal::PanicWhileUnwinding(int uncaught) {
  if (std::current_exception() == nullptr) throw;  // a Goexit passes through

  const std::string text = TextInFlight(uncaught);
  try {
    throw;
  } catch (const std::exception& e) {
    rt::fatalPanicTwice(text.data(), text.size(), e.what());
  } catch (...) {
    rt::fatalPanicTwice(text.data(), text.size(), "exception");
  }
}

}  // namespace gump
