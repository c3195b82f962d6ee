// The prime sieve that newcomers to Go meet first: a chain of goroutines, one
// for each prime. Each goroutine passes on only the numbers that its prime does
// not divide.
//
//   prime_sieve [COUNT]        the first COUNT primes (default 100)
#include <gump/gump.h>

#include <cstdio>
#include <cstdlib>

using namespace gump;

namespace {

// Generate sends 2, 3, 4, ... for as long as a goroutine receives.
void Generate(send_chan<int> out) {
  for (int n = 2;; n++) out.Send(n);
}

void Filter(recv_chan<int> in, send_chan<int> out, int prime) {
  for (int n : in) {
    if (n % prime != 0) out.Send(n);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 100;
  return Run([count] {
    chan<int> numbers = make_chan<int>();
    go(Generate, numbers);
    for (int i = 0; i < count; i++) {
      const int prime = *numbers.Recv();
      std::printf("%d\n", prime);
      chan<int> rest = make_chan<int>();
      go(Filter, numbers, rest, prime);
      numbers = rest;
    }
    // The chain is still running. As in Go, it does not outlive main.
  });
}
