// Servers without a runtime: one thread and a loop, on epoll or on io_uring.
// They show what the kernel's side of a server costs in each form.
#ifndef TOOLS_BENCH_RAW_SERVER_H_
#define TOOLS_BENCH_RAW_SERVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gump::bench {

// RawJob tells a server what to do.
struct RawJob {
  int listener;  // non-blocking
  // The server ends when this becomes readable.
  int stop;
  // The server receives at most this many bytes at a time.
  size_t buffer;
  // The server sends it for each piece that arrives. If it is empty, the server
  // sends the piece back.
  std::string_view answer;
  // The server's system calls so far. Only the server writes it.
  std::atomic<uint64_t>* calls;

  void CountCall() const {
    // fetch_add would be a locked instruction, which costs the server more.
    calls->store(calls->load(std::memory_order_relaxed) + 1,
                 std::memory_order_relaxed);
  }
};

// The forms of an epoll loop.
enum class EpollForm {
  kLevel,  // level-triggered: one recv for an event
  kEdge,   // edge-triggered: recv until a piece is shorter than the buffer
  kAgain,  // edge-triggered: recv until it fails with EAGAIN
  kBatch,  // as kLevel, but all answers of a batch follow its last recv
};

void ServeEpoll(const RawJob& job, EpollForm form);

// How an io_uring loop receives.
enum class UringRecv {
  kSingle,  // a request for each piece, and a buffer for each connection
  kMulti,   // one request for a connection, and buffers that all share
  kTry,     // recv(2) first, and a request if that fails with EAGAIN
  kPoll,    // one poll request for a connection, and recv(2)
};

// How an io_uring loop sends.
enum class UringSend {
  kRequest,  // a request; the next request of the connection follows its end
  kLinked,   // a request together with the next kSingle receive
  kCall,     // send(2)
};

struct UringForm {
  std::string name;
  UringRecv recv;
  UringSend send;
  unsigned flags;  // IORING_SETUP_*
  bool fixed;      // connections are registered with the ring
};

// UringForms returns the forms that are measured.
std::vector<UringForm> UringForms();

// ServeUring returns false if the kernel refuses a ring of this form.
bool ServeUring(const RawJob& job, const UringForm& form);

}  // namespace gump::bench

#endif  // TOOLS_BENCH_RAW_SERVER_H_
