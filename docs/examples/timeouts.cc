// Timeouts with select. The program asks three servers, and each has a limited
// time to answer. Meanwhile a ticker counts. An answer that comes too late goes
// into the channel's buffer, so its sender does not wait for ever.
//
//   timeouts [MS]        how long to wait for an answer; default 500
#include <gump/gump.h>

#include <cstdio>
#include <cstdlib>
#include <string>

using namespace gump;

namespace {

// Ask asks a server that answers after `latency`. If the latency is infinite,
// the server never answers.
recv_chan<std::string> Ask(absl::Duration latency) {
  auto answer = make_chan<std::string>(1);
  go([=] {
    time::Sleep(latency);
    answer.Send("answered");
  });
  return answer;
}

// AskPatiently asks a server that reports its progress from time to time. The
// timeout starts again with each report.
std::string AskPatiently(absl::Duration timeout) {
  auto progress = make_chan<int>();
  go([=] {
    for (int step = 0; step < 3; step++) {
      time::Sleep(timeout / 20);
      progress.Send(step);
    }
    progress.Close();
  });
  time::Timer timer = time::NewTimer(timeout);
  for (bool more = true; more;) {
    if (select(Recv(progress, nullptr, &more), Recv(timer.C)) == 1) {
      return "timed out";
    }
    timer.Reset(timeout);
  }
  return "answered";
}

void Report(const char* name, recv_chan<std::string> answer,
            absl::Duration timeout) {
  select(Recv(answer,
              [&](std::string text) {
                std::printf("%s: %s\n", name, text.c_str());
              }),
         Recv(time::After(timeout),
              [&] { std::printf("%s: timed out\n", name); }));
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Duration timeout =
      absl::Milliseconds(argc > 1 ? std::atoi(argv[1]) : 500);
  return Run([timeout] {
    time::Ticker ticker = time::NewTicker(timeout / 50);
    auto ticks = make_chan<int>();
    auto done = make_chan<void>();
    go([=] {
      int n = 0;
      while (select(Recv(ticker.C), Recv(done)) == 0) n++;
      ticks.Send(n);
    });
    Report("fast", Ask(absl::ZeroDuration()), timeout);
    Report("slow", Ask(absl::InfiniteDuration()), timeout);
    std::printf("steady: %s\n", AskPatiently(timeout).c_str());
    done.Close();
    std::printf("%d ticks while waiting\n", *ticks.Recv());
  });
}
