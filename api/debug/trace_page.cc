// The trace of a page goes to a PageTrace, which holds what the client has not
// taken yet. A goroutine of its own sends that to the client. So the thread
// that writes the trace never waits for the client, and no other trace,
// recorder or stop of the world does.
//
// The memory is bounded. If a client reads more slowly than events come, the
// trace ends once `most` bytes wait for the client, which gets the beginning. A
// trace also ends when a write to the client has failed. The beginning consists
// of whole generations, so it is a whole trace.
//
// Both goroutines look at the PageTrace ten times a second. To wake them would
// gain nothing, because a trace writes once a second.
#include "api/debug/trace_page.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "api/cat.h"
#include "gump/internal/linkname_trace.h"
#include "gump/sync/waitgroup.h"
#include "gump/time.h"

namespace gump::internal {

namespace {

constexpr absl::Duration kLookAtTrace = absl::Milliseconds(100);

// PageTrace is a trace that a page takes. It ends with the object.
class PageTrace {
 public:
  explicit PageTrace(size_t most) : most_(most) {}
  ~PageTrace() { Stop(); }
  PageTrace(const PageTrace&) = delete;
  PageTrace& operator=(const PageTrace&) = delete;

  // Start returns false if a trace is being written already.
  bool Start() { return on_ = rt::traceStartTo(Take, this); }
  void Stop() {
    if (!std::exchange(on_, false)) return;
    rt::traceStopTo(this);
    const std::lock_guard hold(mu_);
    stopped_ = true;
  }

  // Fail ends the trace early. What has not been sent is lost.
  void Fail() {
    const std::lock_guard hold(mu_);
    failed_ = true;
  }
  bool failed() {
    const std::lock_guard hold(mu_);
    return failed_;
  }

  enum class Next : uint8_t { kPart, kNothingYet, kEnd };
  // TakeNext takes the next part out. The caller has sent the part before.
  Next TakeNext(std::string* part) {
    const std::lock_guard hold(mu_);
    held_ -= part->size();
    part->clear();
    if (parts_.empty()) return stopped_ ? Next::kEnd : Next::kNothingYet;
    *part = std::move(parts_.front());
    parts_.pop_front();
    return Next::kPart;
  }

 private:
  // Take is the rt::TraceSink.
  static bool Take(void* arg, const void* bytes, size_t n) {
    auto* t = static_cast<PageTrace*>(arg);
    const std::lock_guard hold(t->mu_);
    if (n > t->most_ - t->held_) t->failed_ = true;
    if (t->failed_) return false;
    try {
      if (n == 0) {
        std::move(t->open_.begin(), t->open_.end(),
                  std::back_inserter(t->parts_));
        t->open_.clear();
      } else {
        t->open_.emplace_back(static_cast<const char*>(bytes), n);
        t->held_ += n;
      }
    } catch (...) {  // a program's operator new may throw anything
      t->failed_ = true;
    }
    return !t->failed_;
  }

  const size_t most_;
  bool on_ = false;
  // Take has no P, so it cannot use a sync::Mutex. No holder parks.
  std::mutex mu_;
  // Guarded by mu_:
  std::deque<std::string> open_;   // of the generation that is not whole yet
  std::deque<std::string> parts_;  // of those before
  size_t held_ = 0;  // bytes in both, and in the part that is being sent
  bool stopped_ = false;
  bool failed_ = false;
};

// SendTrace sends what there is of the trace until it ends.
void SendTrace(PageTrace* trace, PageClient& client) {
  std::string part;
  for (;;) {
    switch (trace->TakeNext(&part)) {
      case PageTrace::Next::kPart:
        if (client.Write(part)) continue;
        return trace->Fail();
      case PageTrace::Next::kNothingYet:
        time::Sleep(kLookAtTrace);
        continue;
      case PageTrace::Next::kEnd:
        return;
    }
  }
}

// StreamTrace traces for `length`. Returns false if the client has not got the
// whole trace.
bool StreamTrace(PageTrace* trace, absl::Duration length, PageClient& client) {
  sync::WaitGroup sending;
  absl::Cleanup end = [&] {
    trace->Stop();
    sending.Wait();
  };
  sending.Go([=, &client] { SendTrace(trace, client); });
  while (length > absl::ZeroDuration() && !trace->failed()) {
    const absl::Duration step = std::min(length, kLookAtTrace);
    if (!client.Wait(step)) break;
    length -= step;
  }
  std::move(end).Invoke();
  return !trace->failed();
}

// TraceSeconds returns how long a trace is to last. As in Go, the text is a
// number that may have a fraction. Any other text means one second.
absl::Duration TraceSeconds(const std::string& text) {
  double seconds = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return absl::Seconds(whole && seconds > 0 ? seconds : 1);
}

}  // namespace

HttpResponse ExecutionTrace(const HttpRequest& r, PageClient& client) {
  if (!client.Reserve()) return TooManyPages();
  auto trace = std::make_unique<PageTrace>(client.Backlog());
  if (!trace->Start()) {
    return PprofError(500, "Could not enable tracing: tracing already enabled");
  }
  HttpResponse answer{
      200, Cat(kNosniffField, kBinaryField, AttachmentField("trace"))};
  answer.stream =
      [trace = std::move(trace), length = TraceSeconds(r.FormValue("seconds"))](
          PageClient& to) { return StreamTrace(&*trace, length, to); };
  return answer;
}

}  // namespace gump::internal
