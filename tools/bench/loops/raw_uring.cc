// The loops on io_uring.
#include <liburing.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <unordered_set>
#include <utility>

#include "tools/bench/raw_server.h"

namespace gump::bench {
namespace {

constexpr unsigned kSubmissions = 4096;
constexpr unsigned kCompletions = 16384;
constexpr unsigned kFixedFiles = 16384;
// Limits of the buffers that the connections of kMulti share: their number, and
// their bytes in all.
constexpr size_t kMostBuffers = 4096;
constexpr size_t kBufferBytes = size_t{16} << 20;

// The kind of a completion, in the low bits of its user_data.
enum : uint64_t { kIgnored, kStop, kAccept, kReceived, kSent, kKindMask = 7 };

// Piece is a part of a message on its way back.
struct Piece {
  const char* data;
  size_t size;
  int buffer;  // to give back when it is sent; -1: none
};

struct alignas(8) Connection {
  int fd = -1;
  bool fixed = false;
  bool receiving = false;  // the kernel has a request to receive or to poll
  bool sending = false;    // the kernel has a request to send unsent.front()
  bool gone = false;
  std::vector<char> buf;  // unless the buffers are shared
  std::vector<Piece> unsent;
};

class UringServer {
 public:
  UringServer(const RawJob& job, const UringForm& form)
      : job_(job), form_(form) {}

  ~UringServer() {
    if (buffers_ != nullptr) {
      io_uring_unregister_buf_ring(&ring_, /*bgid=*/0);
      munmap(buffers_, BufferRingBytes());
    }
    if (made_) io_uring_queue_exit(&ring_);
    for (Connection* c : open_) {
      close(c->fd);
      delete c;
    }
  }

  UringServer(const UringServer&) = delete;
  UringServer& operator=(const UringServer&) = delete;

  bool Setup() {
    io_uring_params p{};
    p.flags = form_.flags | IORING_SETUP_CQSIZE;
    p.cq_entries = kCompletions;
    made_ = io_uring_queue_init_params(kSubmissions, &ring_, &p) == 0;
    if (!made_) return false;
    if (io_uring_register_ring_fd(&ring_) < 0) return false;
    if (form_.fixed && io_uring_register_files_sparse(&ring_, kFixedFiles) != 0)
      return false;
    if (form_.recv == UringRecv::kMulti) return ShareBuffers();
    if (form_.recv == UringRecv::kPoll) shared_.resize(job_.buffer);
    return true;
  }

  void Serve() {
    io_uring_sqe* s = Request();
    io_uring_prep_poll_add(s, job_.stop, POLLIN);
    s->user_data = kStop;
    Accept();
    while (!stopped_) {
      job_.CountCall();
      (void)io_uring_submit_and_wait(&ring_, 1);
      unsigned head;
      unsigned n = 0;
      io_uring_cqe* cqe;
      io_uring_for_each_cqe(&ring_, head, cqe) {
        Completed(cqe);
        n++;
      }
      io_uring_cq_advance(&ring_, n);
      // Now there are buffers again.
      for (Connection* c : std::exchange(starved_, {})) Receive(c);
    }
  }

 private:
  size_t BufferRingBytes() const {
    return buffer_count_ * sizeof(io_uring_buf);
  }

  bool ShareBuffers() {
    // A power of two.
    buffer_count_ = kMostBuffers;
    while (buffer_count_ * job_.buffer > kBufferBytes) buffer_count_ /= 2;
    shared_.resize(buffer_count_ * job_.buffer);
    void* p = mmap(nullptr, BufferRingBytes(), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    io_uring_buf_reg reg{};
    reg.ring_addr = reinterpret_cast<uintptr_t>(p);
    reg.ring_entries = static_cast<uint32_t>(buffer_count_);
    if (io_uring_register_buf_ring(&ring_, &reg, 0) != 0) return false;
    buffers_ = static_cast<io_uring_buf_ring*>(p);
    for (size_t i = 0; i < buffer_count_; i++) GiveBack(static_cast<int>(i));
    return true;
  }

  char* Buffer(int i) {
    return shared_.data() + static_cast<size_t>(i) * job_.buffer;
  }

  void GiveBack(int i) {
    if (i < 0) return;
    io_uring_buf_ring_add(
        buffers_, Buffer(i), static_cast<unsigned>(job_.buffer),
        static_cast<uint16_t>(i),
        io_uring_buf_ring_mask(static_cast<unsigned>(buffer_count_)), 0);
    io_uring_buf_ring_advance(buffers_, 1);
  }

  // Reserve makes room for n requests.
  void Reserve(unsigned n) {
    if (io_uring_sq_space_left(&ring_) >= n) return;
    job_.CountCall();
    (void)io_uring_submit(&ring_);
  }

  io_uring_sqe* Request(unsigned n = 1) {
    Reserve(n);
    return io_uring_get_sqe(&ring_);
  }

  static void Address(io_uring_sqe* s, Connection* c, uint64_t kind) {
    s->user_data = reinterpret_cast<uintptr_t>(c) | kind;
    if (c->fixed) s->flags |= IOSQE_FIXED_FILE;
  }

  void Accept() {
    io_uring_sqe* s = Request();
    io_uring_prep_multishot_accept(s, job_.listener, nullptr, nullptr,
                                   SOCK_NONBLOCK);
    s->user_data = kAccept;
  }

  void Open(int fd) {
    auto* c = new Connection;
    c->fd = fd;
    if (form_.recv == UringRecv::kSingle || form_.recv == UringRecv::kTry) {
      c->buf.resize(job_.buffer);
    }
    if (form_.fixed && static_cast<unsigned>(fd) < kFixedFiles) {
      job_.CountCall();
      c->fixed = io_uring_register_files_update(
                     &ring_, static_cast<unsigned>(fd), &fd, 1) == 1;
    }
    open_.insert(c);
    Receive(c);
  }

  // Cancel ends the requests of a connection.
  void Cancel(Connection* c) {
    if (form_.recv != UringRecv::kPoll) {
      job_.CountCall();
      shutdown(c->fd, SHUT_RDWR);
      return;
    }
    // The state of a connection that is gone does not change any more.
    io_uring_sqe* s = Request();
    io_uring_prep_cancel64(s, reinterpret_cast<uintptr_t>(c) | kReceived, 0);
    s->flags |= IOSQE_CQE_SKIP_SUCCESS;
    s->user_data = kIgnored;
  }

  // End closes the connection, once the kernel has no request for it.
  void End(Connection* c) {
    const bool first = !std::exchange(c->gone, true);
    if (c->receiving || c->sending) {
      if (first) Cancel(c);
      return;
    }
    for (const Piece& p : c->unsent) GiveBack(p.buffer);
    if (c->fixed) {
      int none = -1;
      job_.CountCall();
      io_uring_register_files_update(&ring_, static_cast<unsigned>(c->fd),
                                     &none, 1);
    }
    if (form_.send == UringSend::kCall) {
      job_.CountCall();
      close(c->fd);
    } else {
      io_uring_sqe* s = Request();
      io_uring_prep_close(s, c->fd);
      s->flags |= IOSQE_CQE_SKIP_SUCCESS;
      s->user_data = kIgnored;
    }
    open_.erase(c);
    delete c;
  }

  // Receive makes a request to receive the next piece, or all that follow.
  void Receive(Connection* c) {
    if (c->gone) return End(c);
    io_uring_sqe* s = Request();
    const int fd = c->fd;
    switch (form_.recv) {
      case UringRecv::kSingle:
      case UringRecv::kTry:
        io_uring_prep_recv(s, fd, c->buf.data(), c->buf.size(), 0);
        // The next piece has probably not arrived yet, so do not try at once.
        s->ioprio |= IORING_RECVSEND_POLL_FIRST;
        break;
      case UringRecv::kMulti:
        io_uring_prep_recv_multishot(s, fd, nullptr, 0, 0);
        s->ioprio |= IORING_RECVSEND_POLL_FIRST;
        s->flags |= IOSQE_BUFFER_SELECT;
        s->buf_group = 0;
        break;
      case UringRecv::kPoll:
        io_uring_prep_poll_multishot(s, fd, POLLIN | POLLRDHUP);
        break;
    }
    Address(s, c, kReceived);
    c->receiving = true;
  }

  // Next goes on to receive, unless a request to receive is under way.
  void Next(Connection* c) {
    if (form_.recv == UringRecv::kTry) return Drain(c, c->buf.data(), false);
    if (!c->receiving) Receive(c);
  }

  // Drain receives by recv(2), until there is no more.
  void Drain(Connection* c, char* buf, bool short_is_all) {
    while (!c->sending) {
      job_.CountCall();
      const ssize_t n = recv(c->fd, buf, job_.buffer, 0);
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) return End(c);
      if (!Send(c, {buf, static_cast<size_t>(n), -1})) return;
      if (short_is_all && static_cast<size_t>(n) < job_.buffer) break;
    }
    if (!c->sending && !c->receiving) Receive(c);
  }

  // SendUnsent makes a request to send the first piece of c->unsent.
  void SendUnsent(Connection* c, unsigned flags, unsigned room) {
    const Piece& p = c->unsent.front();
    io_uring_sqe* s = Request(room);
    io_uring_prep_send(s, c->fd, p.data, p.size, MSG_NOSIGNAL | MSG_WAITALL);
    s->flags |= static_cast<uint8_t>(flags);
    Address(s, c, kSent);
  }

  // Send sends a piece, or makes a request to send it. Returns false if c is
  // gone.
  bool Send(Connection* c, Piece p) {
    const int buffer = p.buffer;
    if (!job_.answer.empty()) {
      p = {job_.answer.data(), job_.answer.size(), p.buffer};
    }
    if (form_.send == UringSend::kLinked) {
      // The kernel starts the receive when the send is complete, and reports
      // only the receive, unless the send fails.
      c->unsent.assign(1, p);
      SendUnsent(c, IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS, 2);
      Receive(c);
      return true;
    }
    if (form_.send == UringSend::kCall && c->unsent.empty()) {
      job_.CountCall();
      const ssize_t n = send(c->fd, p.data, p.size, MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN) {
        GiveBack(buffer);
        End(c);
        return false;
      }
      const size_t sent = n < 0 ? 0 : static_cast<size_t>(n);
      if (sent == p.size) {
        GiveBack(buffer);
        return true;
      }
      p.data += sent;
      p.size -= sent;
    }
    if (buffer < 0 && form_.recv == UringRecv::kPoll) {
      // All connections share the buffer.
      c->buf.assign(p.data, p.data + p.size);
      p.data = c->buf.data();
    }
    c->unsent.push_back(p);
    if (!std::exchange(c->sending, true)) SendUnsent(c, 0, 1);
    return true;
  }

  void Received(Connection* c, const io_uring_cqe* cqe) {
    c->receiving = (cqe->flags & IORING_CQE_F_MORE) != 0;
    const int res = cqe->res;
    if (form_.recv == UringRecv::kPoll) {
      // An event that comes while a piece waits is for Next.
      if (c->gone) return End(c);
      if (!c->sending) {
        Drain(c, shared_.data(), (res & (POLLRDHUP | POLLHUP | POLLERR)) == 0);
      }
      return;
    }
    if (res == -ENOBUFS) {
      starved_.push_back(c);
      return;
    }
    if (res <= 0) return End(c);
    const int buffer = (cqe->flags & IORING_CQE_F_BUFFER) != 0
                           ? static_cast<int>(cqe->flags >> 16)
                           : -1;
    if (c->gone) {
      GiveBack(buffer);
      return End(c);
    }
    const char* data = buffer >= 0 ? Buffer(buffer) : c->buf.data();
    if (!Send(c, {data, static_cast<size_t>(res), buffer})) return;
    if (form_.send == UringSend::kLinked) return;
    if (!c->sending || form_.recv == UringRecv::kMulti) Next(c);
  }

  void Sent(Connection* c, int res) {
    // The end of a linked send is reported only if it failed, and the end of
    // the receive follows.
    if (form_.send == UringSend::kLinked) return;
    GiveBack(c->unsent.front().buffer);
    c->unsent.erase(c->unsent.begin());
    c->sending = !c->unsent.empty() && res >= 0;
    if (res < 0 || c->gone) return End(c);
    if (c->sending) return SendUnsent(c, 0, 1);
    if (form_.recv == UringRecv::kPoll) {
      return Drain(c, shared_.data(), /*short_is_all=*/false);
    }
    Next(c);
  }

  void Completed(const io_uring_cqe* cqe) {
    auto* c = reinterpret_cast<Connection*>(cqe->user_data & ~kKindMask);
    switch (cqe->user_data & kKindMask) {
      case kStop:
        stopped_ = true;
        break;
      case kAccept:
        if (cqe->res >= 0) Open(cqe->res);
        if ((cqe->flags & IORING_CQE_F_MORE) == 0) Accept();
        break;
      case kReceived:
        Received(c, cqe);
        break;
      case kSent:
        Sent(c, cqe->res);
        break;
      default:
        break;
    }
  }

  const RawJob job_;
  const UringForm form_;
  io_uring ring_ = {};
  bool made_ = false;
  bool stopped_ = false;
  io_uring_buf_ring* buffers_ = nullptr;
  size_t buffer_count_ = 0;
  std::vector<char> shared_;  // kMulti: the buffers; kPoll: the buffer
  std::vector<Connection*> starved_;
  std::unordered_set<Connection*> open_;
};

}  // namespace

std::vector<UringForm> UringForms() {
  constexpr unsigned kDefer =
      IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
  constexpr unsigned kCoop =
      IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN;
  using R = UringRecv;
  using S = UringSend;
  return {
      {"single", R::kSingle, S::kRequest, kDefer, false},
      {"linked", R::kSingle, S::kLinked, kDefer, false},
      {"multi", R::kMulti, S::kRequest, kDefer, false},
      {"single-send", R::kSingle, S::kCall, kDefer, false},
      {"multi-send", R::kMulti, S::kCall, kDefer, false},
      {"try", R::kTry, S::kCall, kDefer, false},
      {"poll", R::kPoll, S::kCall, kDefer, false},
      {"single-fixed", R::kSingle, S::kRequest, kDefer, true},
      {"multi-fixed", R::kMulti, S::kRequest, kDefer, true},
      {"single-coop", R::kSingle, S::kRequest, kCoop, false},
      {"multi-coop", R::kMulti, S::kRequest, kCoop, false},
      {"multi-plain", R::kMulti, S::kRequest, 0, false},
  };
}

bool ServeUring(const RawJob& job, const UringForm& form) {
  UringServer server(job, form);
  if (!server.Setup()) return false;
  server.Serve();
  return true;
}

}  // namespace gump::bench
