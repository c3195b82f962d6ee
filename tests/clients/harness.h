// Helpers for the client matrix: unmodified clients in hooked goroutines, each
// against a real server.
//
// A test file is a client. Each of its tests is a row of the matrix:
//   Crowd         a thousand goroutines wait for the server at the same time
//   Faults        the server dies, resets a connection, or is too slow
//   Mixed         requests beside goroutines that compute, stops of the world,
//                 children and dumps
//   Differential  the same calls on a plain thread give the same results
// Shows sets the text of a row in docs/clients.md.
#ifndef TESTS_CLIENTS_HARNESS_H_
#define TESTS_CLIENTS_HARNESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "gump/chan.h"
#include "gump/exec.h"
#include "gump/go.h"
#include "gump/os/file.h"
#include "gump/sync/waitgroup.h"
#include "tests/peers/peers.h"
#include "tests/testing/held_port.h"

namespace gump::testing {

// Clients is the fixture of a client. Its name in the results is that of the
// test program, such as "hiredis".
class Clients : public Peers {
 protected:
  void SetUp() override;
  void TearDown() override;

  // About writes the versions of the client and the server, such as
  // "hiredis 0.14.1" and "Redis 7.0.15", into the results. `way` says how a
  // goroutine waits: "parks in `read`".
  void About(const std::string& client, const std::string& server,
             const std::string& way);
  // Shows sets the text of the row: what the test has shown, or measured. If
  // the test fails, the row says that instead.
  void Shows(std::string text) { shown_ = std::move(text); }

 private:
  std::string shown_;
};

// LocalServer is a program that serves on loopback or on a Unix socket. It ends
// with its owner, or when this process dies.
class LocalServer {
 public:
  // Runs the command as AsUser says: PostgreSQL refuses to run as root.
  explicit LocalServer(const std::vector<std::string>& command,
                       const std::string& user = "");
  ~LocalServer();
  // Says waits until the server has printed a line with this text.
  std::string Says(std::string_view text) { return program_.Says(text); }
  // Kill ends the server at once, and waits until it has ended.
  void Kill();
  pid_t Pid() const { return program_.Pid(); }

 private:
  Program program_;
  exec::Cmd guard_;  // kills the server if this process has not ended it
  os::File life_;
  bool ended_ = false;
};

// AsUser returns a command that runs as that user. If this process is not root,
// or the name is empty, it returns the command as it is.
std::vector<std::string> AsUser(const std::string& user,
                                std::vector<std::string> command);

// RunToEnd runs a command, and expects that it succeeds.
void RunToEnd(std::vector<std::string> command);

// ProgramIn returns the path of a program in the newest folder that matches,
// such as /usr/lib/postgresql/*/bin, or "" if there is none.
std::string ProgramIn(const std::string& pattern);

// WebServer is web_server.py on a loopback port, with TLS or without. With TLS
// it has a certificate for 127.0.0.1 and localhost, made for this test.
class WebServer {
 public:
  enum class Transport { kPlain, kTls };
  explicit WebServer(Transport transport);
  LocalServer& operator*() { return server_; }
  int Port() const { return port_.Port(); }
  // Url returns the address of a page, whose path begins with a slash.
  std::string Url(const std::string& path) const;
  // The certificate, which is its own authority.
  std::string Certificate() const { return dir_ / "certificate.pem"; }

 private:
  std::vector<std::string> Command();

  const Transport transport_;
  HeldPort port_;
  TempDir dir_;
  LocalServer server_;
};

// Skip ends the program with 77, which ctest takes for "skipped".
[[noreturn]] void Skip(const std::string& reason);

// ---- C: a crowd -------------------------------------------------------------

// Waits is a call that waits for the server, for `seconds`.
using Waits = std::function<void(int seconds)>;

struct CrowdFigures {
  int threads = 0;     // of this process, the most at any sample
  double cpu = 0;      // of this process while all wait, in percent
  double seconds = 0;  // from the start of the calls to the last answer
  int waited = 0;      // the length of a wait in seconds
  std::string Text() const;
};

// Crowd starts n goroutines, which are hooked by default. Each makes its client
// by connect(i). When all have one, all call it at the same time, and wait for
// a second.
//
// The figures need a time in which all wait. On a busy machine the first
// goroutine may be done before the last has begun. Then the goroutines wait
// again, twice as long.
enum class Goroutines { kHooked, kPlain };
CrowdFigures Crowd(int n, const std::function<Waits(int i)>& connect,
                   Goroutines kind = Goroutines::kHooked);

// ExpectFewThreads holds the figures to their limits. own is the number of
// threads that the client makes for itself.
void ExpectFewThreads(const CrowdFigures& f, int own = 0);

// ThreadCount returns how many threads this process has.
int ThreadCount();

// ---- F: faults --------------------------------------------------------------

// How many goroutines wait when a server is killed.
constexpr int kWaiters = 100;

// ExpectAllDie makes n hooked goroutines. Each makes its client by connect(i),
// and then calls the result, which waits for the server. When all have a
// client, the server is killed. A call returns true if it has failed as one to
// a dead server should, and ExpectAllDie expects that all do.
void ExpectAllDie(LocalServer& server, int n,
                  const std::function<std::function<bool()>(int i)>& connect);

// RudeServer accepts connections, reads something from each, and then resets
// it, never answers, or sends back what it gets. It runs on a plain thread.
class RudeServer {
 public:
  enum class Manner { kResets, kIsSilent, kEchoes };
  explicit RudeServer(Manner manner);
  ~RudeServer();
  RudeServer(const RudeServer&) = delete;
  RudeServer& operator=(const RudeServer&) = delete;
  uint16_t Port() const { return port_; }

 private:
  void Serve();

  const Manner manner_;
  int listener_ = -1;
  int stop_[2] = {-1, -1};
  uint16_t port_ = 0;
  std::thread thread_;
};

// ---- M: mixed load ----------------------------------------------------------

// Unrest lasts from its construction to its destruction. Meanwhile goroutines
// compute, GOMAXPROCS changes between 1 and 2, children are started, memory is
// reclaimed, and all goroutines are dumped every 10 ms.
class Unrest {
 public:
  Unrest();
  ~Unrest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// InHooked runs f(0) to f(n - 1) in hooked goroutines, and returns when all
// have returned.
void InHooked(int n, const std::function<void(int i)>& f);

// ---- D: differential --------------------------------------------------------

// Transcript is what calls return, one line for each.
using Transcript = std::vector<std::string>;

// ExpectSame runs calls on a plain thread and in a goroutine, and expects the
// same transcripts. Returns the number of their lines.
size_t ExpectSame(const std::function<Transcript()>& calls,
                  Goroutines kind = Goroutines::kHooked);

}  // namespace gump::testing

#endif  // TESTS_CLIENTS_HARNESS_H_
