// The smallest server: it sends back every byte that a client sends. Clients in
// the same process check that it does.
//
//   echo_server [CLIENTS [ROUNDS]]   default 100 clients, 100 rounds each
//   echo_server serve ADDRESS        until SIGINT; ADDRESS is :7000, unix:PATH
#include <gump/gump.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "address.h"

using namespace gump;

namespace {

void Echo(const net::Conn& conn) {
  char buf[4096];
  for (;;) {
    const absl::StatusOr<size_t> n = conn.Read(absl::MakeSpan(buf));
    if (!n.ok() || *n == 0) return;  // the last handle closes the connection
    if (!conn.Write({buf, *n}).ok()) return;
  }
}

// Serve returns when the listener is closed.
void Serve(const net::Listener& listener) {
  for (;;) {
    const absl::StatusOr<net::Conn> conn = listener.Accept();
    if (absl::IsCancelled(conn.status())) return;
    if (conn.ok()) {
      go([c = *conn] { Echo(c); });
    } else {
      std::fprintf(stderr, "%s\n", conn.status().ToString().c_str());
      time::Sleep(absl::Milliseconds(5));  // perhaps no descriptor is free
    }
  }
}

int ServeUntilSignal(const char* address) {
  const auto [ctx, stop] =
      signal::NotifyContext(context::Background(), {SIGINT, SIGTERM});
  const absl::StatusOr<net::Listener> listener = ListenAt(address);
  if (!listener.ok()) {
    std::fprintf(stderr, "%s\n", listener.status().ToString().c_str());
    return 1;
  }
  context::AfterFunc(ctx, [l = *listener] { (void)l.Close(); });
  Serve(*listener);
  return 0;
}

// Converse returns true if everything that it sends comes back.
bool Converse(const std::string& address, int client, int rounds) {
  const absl::StatusOr<net::Conn> conn = net::Dial("tcp", address);
  if (!conn.ok()) return false;
  for (int round = 0; round < rounds; round++) {
    const std::string said =
        "client " + std::to_string(client) + ", round " + std::to_string(round);
    if (!conn->Write(said).ok()) return false;
    std::string heard(said.size(), '\0');
    for (size_t at = 0; at < heard.size();) {
      const absl::StatusOr<size_t> n =
          conn->Read(absl::MakeSpan(&heard[at], heard.size() - at));
      if (!n.ok() || *n == 0) return false;
      at += *n;
    }
    if (heard != said) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const bool serve = argc == 3 && std::string(argv[1]) == "serve";
  const int clients = !serve && argc > 1 ? std::atoi(argv[1]) : 100;
  const int rounds = !serve && argc > 2 ? std::atoi(argv[2]) : 100;
  if (clients < 1 || rounds < 1) {
    std::fprintf(stderr,
                 "usage: echo_server [CLIENTS [ROUNDS]] | serve ADDRESS\n");
    return 2;
  }
  return Run([=] {
    if (serve) return ServeUntilSignal(argv[2]);
    const absl::StatusOr<net::Listener> listener =
        net::Listen("tcp", "127.0.0.1:0");
    if (!listener.ok()) {
      std::fprintf(stderr, "%s\n", listener.status().ToString().c_str());
      return 1;
    }
    go([l = *listener] { Serve(l); });
    std::atomic<int> happy = 0;
    sync::WaitGroup all;
    for (int c = 0; c < clients; c++) {
      all.Go([&, c] {
        if (Converse(listener->LocalAddr().String(), c, rounds)) happy++;
      });
    }
    all.Wait();
    (void)listener->Close();
    std::printf("%d of %d clients heard what they said\n", happy.load(),
                clients);
    return happy == clients ? 0 : 1;
  });
}
