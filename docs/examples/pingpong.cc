// Two players hit a ball over two unbuffered channels until the rally is long
// enough. The ball is a move-only value.
//
//   pingpong [HITS]            default 1000000
#include <gump/gump.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

using namespace gump;

namespace {

struct Ball {
  int hits = 0;
};
using BallPtr = std::unique_ptr<Ball>;

void Player(chan<BallPtr> mine, chan<BallPtr> theirs, int hits) {
  for (BallPtr ball; mine.Recv(ball);) {
    if (ball->hits == hits) {
      theirs.Close();  // ends the game for the other player
      std::printf("rally of %d hits\n", ball->hits);
      return;
    }
    ball->hits++;
    theirs.Send(std::move(ball));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int hits = argc > 1 ? std::atoi(argv[1]) : 1'000'000;
  return Run([hits] {
    chan<BallPtr> ping = make_chan<BallPtr>();
    chan<BallPtr> pong = make_chan<BallPtr>();
    sync::WaitGroup game;
    const auto start = std::chrono::steady_clock::now();
    game.Go([=] { Player(ping, pong, hits); });
    game.Go([=] { Player(pong, ping, hits); });
    ping.Send(std::make_unique<Ball>());
    game.Wait();
    const std::chrono::duration<double, std::nano> elapsed =
        std::chrono::steady_clock::now() - start;
    std::printf("%.0f ns a hit\n", elapsed.count() / (hits + 1));
  });
}
