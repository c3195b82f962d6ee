// Shows how code that waits for minutes is tested in microseconds. In a
// synctest bubble the clock jumps forward as soon as all goroutines of the
// bubble wait.
//
// The code under test is a client that calls a server until it is up. After
// each failure it waits twice as long, and it gives up when its context ends.
//
//   backoff_in_a_bubble [SECONDS]        until the server is up; default 100
#include <gump/gump.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace gump;

namespace {

// CallUntil is the code under test. It knows nothing of bubbles.
template <class Try>
absl::Status CallUntil(const context::Context& ctx, Try once) {
  for (absl::Duration pause = absl::Seconds(1);; pause *= 2) {
    if (once()) return absl::OkStatus();
    if (select(Recv(ctx.Done()), Recv(time::After(pause))) == 0) {
      return ctx.Err();
    }
  }
}

void Test(absl::Duration up, absl::Duration patience) {
  synctest::Run([=] {
    const absl::Time start = synctest::Now();
    std::atomic<bool> is_up = false;
    time::AfterFunc(up, [&] { is_up = true; });
    const auto [ctx, cancel] =
        context::WithTimeout(context::Background(), patience);
    defer _{cancel};
    int tries = 0;
    const absl::Status s = CallUntil(ctx, [&] {
      tries++;
      return is_up.load();
    });
    std::printf(
        "%s after %d tries, %d s\n",
        s.ok() ? "answered" : std::string(s.message()).c_str(), tries,
        static_cast<int>(absl::ToInt64Seconds(synctest::Now() - start)));
    time::Sleep(up);  // until AfterFunc has run, because it uses is_up
  });
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Duration up = absl::Seconds(argc > 1 ? std::atoi(argv[1]) : 100);
  return Run([=] {
    const auto start = std::chrono::steady_clock::now();
    Test(up, absl::Hours(1));
    Test(up, up / 2);
    const auto took = std::chrono::steady_clock::now() - start;
    std::printf("%lld us of real time\n",
                static_cast<long long>(
                    std::chrono::duration_cast<std::chrono::microseconds>(took)
                        .count()));
  });
}
