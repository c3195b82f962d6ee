// Hooked calls give the same results as on a plain thread: each case runs on
// both, and what it saw must be equal.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gump/hooks.h"
#include "runtime/sys/sanitizer.h"
#include "tests/testing/with_gomaxprocs.h"

namespace gump::testing {
namespace {

// ThreadSanitizer ends the test at some errors before the program sees them.
#if defined(GUMP_TSAN)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

// Seen is what a case saw, as text.
class Seen {
 public:
  // Call notes the result of a call, and errno if it is -1.
  template <class R>
  R Call(const char* name, R result) {
    const int err = errno;
    text_ += std::string(name) + " " + std::to_string(result);
    if (result == R{} - 1) text_ += std::string(" ") + strerrorname_np(err);
    text_ += "\n";
    errno = 0;
    return result;
  }
  void Note(std::string_view what) { text_.append(what).append("\n"); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Ends closes what it has.
struct Ends {
  ~Ends() {
    close(fd[0]);
    close(fd[1]);
  }
  int fd[2] = {-1, -1};
};
struct Sockets : Ends {
  explicit Sockets(int type = SOCK_STREAM) {
    if (socketpair(AF_UNIX, type, 0, fd) != 0) std::abort();
  }
};
struct Pipe : Ends {
  Pipe() {
    if (pipe(fd) != 0) std::abort();
  }
};

template <class F>
std::thread Later(F f) {
  return std::thread([f] {
    usleep(3000);
    f();
  });
}

void SetLimit(int fd, int option, int ms) {
  const timeval t{0, ms * 1000};
  (void)setsockopt(fd, SOL_SOCKET, option, &t, sizeof(t));
}

sockaddr_in Loopback() {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

const sockaddr* Generic(const sockaddr_in& a) {
  return reinterpret_cast<const sockaddr*>(&a);
}

struct Case {
  const char* name;
  void (*run)(Seen*);
};

// ---- Receiving

void BadDescriptors(Seen* s) {
  char b[4];
  iovec v{b, 4};
  msghdr m{};
  m.msg_iov = &v;
  m.msg_iovlen = 1;
  s->Call("recv", recv(-1, b, 4, 0));
  s->Call("recvfrom", recvfrom(9999, b, 4, 0, nullptr, nullptr));
  s->Call("recvmsg", recvmsg(9999, &m, 0));
  s->Call("read", read(9999, b, 4));
  s->Call("readv", readv(9999, &v, 1));
  s->Call("pread", pread(9999, b, 4, 0));
  s->Call("send", send(9999, b, 4, 0));
  s->Call("sendmsg", sendmsg(9999, &m, 0));
  s->Call("write", write(9999, b, 4));
  s->Call("writev", writev(9999, &v, 1));
  s->Call("accept", accept(9999, nullptr, nullptr));
  const sockaddr_in a = Loopback();
  s->Call("connect", connect(9999, Generic(a), sizeof(a)));
  s->Call("close", close(9999));
  s->Call("flock", flock(9999, LOCK_EX));
  s->Call("fcntl", fcntl(9999, F_GETFL));
  s->Call("fsync", fsync(9999));
  s->Call("fdatasync", fdatasync(9999));
  s->Call("lockf", lockf(9999, F_LOCK, 0));
}

void NoSockets(Seen* s) {
  Pipe p;
  char b[4] = {};
  s->Call("recv", recv(p.fd[0], b, 4, 0));
  s->Call("send", send(p.fd[1], b, 4, 0));
  s->Call("accept", accept(p.fd[0], nullptr, nullptr));
  const sockaddr_in a = Loopback();
  s->Call("connect", connect(p.fd[0], Generic(a), sizeof(a)));
  s->Call("fsync", fsync(p.fd[0]));
  s->Call("pread", pread(p.fd[0], b, 4, 0));
}

void StreamEnds(Seen* s) {
  Sockets p;
  char b[8] = {};
  std::thread t = Later([&] {
    (void)!write(p.fd[1], "ab", 2);
    usleep(2000);
    (void)!write(p.fd[1], "cd", 2);
    usleep(2000);
    shutdown(p.fd[1], SHUT_WR);
  });
  s->Call("peek", recv(p.fd[0], b, 1, MSG_PEEK));
  s->Call("all", recv(p.fd[0], b, 8, MSG_WAITALL));
  s->Note({b, 4});
  s->Call("end", recv(p.fd[0], b, 8, 0));
  s->Call("end", read(p.fd[0], b, 8));
  t.join();
}

void Datagrams(Seen* s) {
  Sockets p(SOCK_DGRAM);
  char b[8] = {};
  std::thread t = Later([&] {
    (void)!send(p.fd[1], "", 0, 0);
    (void)!send(p.fd[1], "abcdef", 6, 0);
    (void)!send(p.fd[1], "xyz", 3, 0);
  });
  s->Call("empty", recv(p.fd[0], b, 8, 0));
  s->Call("cut", recv(p.fd[0], b, 3, MSG_TRUNC));
  s->Call("read", read(p.fd[0], b, 8));
  s->Note({b, 3});
  t.join();
}

void Packets(Seen* s) {
  Sockets p(SOCK_SEQPACKET);
  char b[8] = {};
  std::thread t = Later([&] {
    (void)!send(p.fd[1], "abc", 3, 0);
    (void)!send(p.fd[1], "de", 2, 0);
    close(std::exchange(p.fd[1], -1));
  });
  s->Call("one", recv(p.fd[0], b, 8, MSG_WAITALL));
  s->Call("two", recv(p.fd[0], b, 8, 0));
  s->Call("end", recv(p.fd[0], b, 8, 0));
  t.join();
}

void Messages(Seen* s) {
  Sockets p;
  char one[2];
  char two[4] = {};
  iovec v[2] = {{one, 2}, {two, 4}};
  msghdr m{};
  m.msg_iov = v;
  m.msg_iovlen = 2;
  alignas(cmsghdr) char control[64];
  m.msg_control = control;
  m.msg_controllen = sizeof(control);
  std::thread t = Later([&] { (void)!write(p.fd[1], "abcdef", 6); });
  s->Call("recvmsg", recvmsg(p.fd[0], &m, 0));
  s->Note(std::to_string(m.msg_controllen) + std::string(two, 4));
  t.join();
  t = Later([&] { (void)!write(p.fd[1], "abcdef", 6); });
  s->Call("readv", readv(p.fd[0], v, 2));
  t.join();
  s->Call("readv of none", readv(p.fd[0], v, 0));
  s->Call("read of none", read(p.fd[0], one, 0));
}

void Limits(Seen* s) {
  Sockets p;
  char b[8];
  SetLimit(p.fd[0], SO_RCVTIMEO, 5);
  s->Call("recv", recv(p.fd[0], b, 8, 0));
  s->Call("read", read(p.fd[0], b, 8));
  (void)!write(p.fd[1], "abc", 3);
  s->Call("partial", recv(p.fd[0], b, 8, MSG_WAITALL));
  SetLimit(p.fd[0], SO_SNDTIMEO, 5);
  const std::string much(8 << 20, 'x');
  const ssize_t n = send(p.fd[0], much.data(), much.size(), 0);
  s->Note(n > 0 && n < static_cast<ssize_t>(much.size()) ? "some" : "other");
  s->Call("full", send(p.fd[0], "x", 1, 0));
  s->Call("full", send(p.fd[0], "x", 1, MSG_DONTWAIT));
}

void NonBlocking(Seen* s) {
  Sockets p(SOCK_STREAM | SOCK_NONBLOCK);
  Pipe q;
  char b[8];
  s->Call("recv", recv(p.fd[0], b, 8, 0));
  s->Call("read", read(p.fd[0], b, 8));
  s->Call("all", recv(p.fd[0], b, 8, MSG_WAITALL));
  s->Call("fcntl", fcntl(q.fd[0], F_SETFL, O_NONBLOCK));
  s->Call("pipe", read(q.fd[0], b, 8));
  s->Call("flags", fcntl(q.fd[0], F_GETFL) & O_NONBLOCK);
}

void Resets(Seen* s) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a = Loopback();
  socklen_t size = sizeof(a);
  (void)bind(listener, Generic(a), size);
  (void)getsockname(listener, reinterpret_cast<sockaddr*>(&a), &size);
  (void)listen(listener, 1);
  const int c = socket(AF_INET, SOCK_STREAM, 0);
  s->Call("connect", connect(c, Generic(a), size));
  const int peer = accept(listener, nullptr, nullptr);
  std::thread t = Later([&] {
    (void)!write(peer, "abc", 3);
    usleep(3000);
    const linger now{1, 0};
    (void)setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(peer);
  });
  char b[8] = {};
  s->Call("partial", recv(c, b, 8, MSG_WAITALL));
  s->Call("reset", recv(c, b, 8, 0));
  s->Call("end", recv(c, b, 8, 0));
  t.join();
  close(c);
  close(listener);
}

void Oddities(Seen* s) {
  Sockets p;
  char b[8];
  iovec v{b, 8};
  msghdr m{};
  m.msg_iov = &v;
  m.msg_iovlen = 1;
  const int udp = socket(AF_INET, SOCK_DGRAM, 0);
  s->Call("errors", recvmsg(udp, &m, MSG_ERRQUEUE));
  close(udp);
  iovec none[2] = {{b, 0}, {b, 0}};
  s->Call("readv", readv(p.fd[0], none, 2));
  s->Call("writev", writev(p.fd[0], none, 2));
  std::vector<iovec> many(2000, v);
  s->Call("many", readv(p.fd[0], many.data(), 2000));
  m.msg_iov = many.data();
  m.msg_iovlen = 2000;
  s->Call("many", sendmsg(p.fd[0], &m, 0));
  timeval now{0, 1000};
  s->Call("wide", select(1 << 20, nullptr, nullptr, nullptr, &now));
}

// ---- Sending

void ClosedPeers(Seen* s) {
  Sockets p;
  Pipe q;
  close(std::exchange(p.fd[1], -1));
  close(std::exchange(q.fd[0], -1));
  s->Call("send", send(p.fd[0], "x", 1, MSG_NOSIGNAL));
  s->Call("write", write(p.fd[0], "x", 1));
  s->Call("pipe", write(q.fd[1], "x", 1));
  char b;
  s->Call("recv", recv(p.fd[0], &b, 1, 0));
}

void Pieces(Seen* s) {
  Sockets p;
  std::string a(3 << 20, 'a');
  std::string b(100, 'b');
  std::string c(2 << 20, 'c');
  std::string got;
  std::thread t([&] {
    char buf[8192];
    ssize_t n;
    while ((n = read(p.fd[1], buf, sizeof(buf))) > 0) {
      got.append(buf, static_cast<size_t>(n));
    }
  });
  iovec v[4] = {{a.data(), a.size()},
                {b.data(), 0},
                {b.data(), 100},
                {c.data(), c.size()}};
  s->Call("writev", writev(p.fd[0], v, 4));
  msghdr m{};
  m.msg_iov = v;
  m.msg_iovlen = 4;
  s->Call("sendmsg", sendmsg(p.fd[0], &m, 0));
  s->Call("write", write(p.fd[0], c.data(), c.size()));
  shutdown(p.fd[0], SHUT_WR);
  t.join();
  s->Note(got == a + b + c + a + b + c + c ? "equal" : "different");
}

void DescriptorsTravel(Seen* s) {
  Sockets p;
  char c = 'x';
  iovec v{&c, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr m{};
  m.msg_iov = &v;
  m.msg_iovlen = 1;
  m.msg_control = control;
  m.msg_controllen = sizeof(control);
  cmsghdr* h = CMSG_FIRSTHDR(&m);
  h->cmsg_level = SOL_SOCKET;
  h->cmsg_type = SCM_RIGHTS;
  h->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(h), &p.fd[0], sizeof(int));
  s->Call("sendmsg", sendmsg(p.fd[0], &m, 0));
  s->Call("recvmsg", recvmsg(p.fd[1], &m, 0));
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
  s->Call("close", close(fd));
}

// ---- Connecting

void Connections(Seen* s) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a = Loopback();
  socklen_t size = sizeof(a);
  s->Call("accept", accept(listener, nullptr, nullptr));
  s->Call("bind", bind(listener, Generic(a), size));
  getsockname(listener, reinterpret_cast<sockaddr*>(&a), &size);
  const int early = socket(AF_INET, SOCK_STREAM, 0);
  s->Call("refused", connect(early, Generic(a), size));
  close(early);
  s->Call("listen", listen(listener, 8));
  SetLimit(listener, SO_RCVTIMEO, 5);
  s->Call("accept", accept(listener, nullptr, nullptr));
  SetLimit(listener, SO_RCVTIMEO, 0);
  const int c = socket(AF_INET, SOCK_STREAM, 0);
  s->Call("connect", connect(c, Generic(a), size));
  s->Call("again", connect(c, Generic(a), size));
  s->Call("flags", fcntl(c, F_GETFL) & O_NONBLOCK);
  const int got = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  s->Call("cloexec", got < 0 ? -1 : fcntl(got, F_GETFD));
  s->Call("short address", connect(c, Generic(a), 3));
  close(got);
  close(c);
  const int n = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  s->Call("non-blocking", connect(n, Generic(a), size));
  close(n);
  s->Call("fcntl", fcntl(listener, F_SETFL, O_NONBLOCK));
  const int rest = accept(listener, nullptr, nullptr);
  close(rest);
  s->Call("empty", accept(listener, nullptr, nullptr));
  close(listener);
}

// ---- Waiting for several

void Polls(Seen* s) {
  Pipe p;
  pollfd f[3] = {{p.fd[0], POLLIN, 0}, {-1, POLLIN, 7}, {p.fd[1], POLLOUT, 0}};
  s->Call("out", poll(f, 3, -1));
  s->Note(std::to_string(f[0].revents) + " " + std::to_string(f[1].revents) +
          " " + std::to_string(f[2].revents));
  s->Call("limit", poll(f, 2, 5));
  s->Call("now", poll(f, 2, 0));
  s->Call("none", poll(nullptr, 0, 3));
  f[1].fd = 9999;
  s->Call("not open", poll(f, 2, 1000));
  s->Note(std::to_string(f[1].revents));
  const timespec limit{0, 3'000'000};
  s->Call("ppoll", ppoll(f, 1, &limit, nullptr));
  const timespec bad{0, 2'000'000'000};
  s->Call("bad time", ppoll(f, 1, &bad, nullptr));
  sigset_t mask;
  sigemptyset(&mask);
  s->Call("mask", ppoll(f, 1, &limit, &mask));
  close(std::exchange(p.fd[1], -1));
  s->Call("hangup", poll(f, 1, -1));
  s->Note(std::to_string(f[0].revents));
}

void Selects(Seen* s) {
  Pipe p;
  fd_set r;
  fd_set w;
  const auto set = [&] {
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_SET(p.fd[0], &r);
    FD_SET(p.fd[1], &w);
  };
  const auto sets = [&] {
    s->Note(std::to_string(FD_ISSET(p.fd[0], &r) != 0) +
            std::to_string(FD_ISSET(p.fd[1], &w) != 0));
  };
  const int n = std::max(p.fd[0], p.fd[1]) + 1;
  set();
  s->Call("out", select(n, &r, &w, nullptr, nullptr));
  sets();
  set();
  timeval limit{0, 5000};
  s->Call("limit", select(n, &r, nullptr, nullptr, &limit));
  s->Note(std::to_string(limit.tv_sec) + " " + std::to_string(limit.tv_usec));
  sets();
  timeval sleep{0, 2000};
  s->Call("sleep", select(0, nullptr, nullptr, nullptr, &sleep));
  set();
  const timespec plimit{0, 3'000'000};
  s->Call("pselect", pselect(n, &r, nullptr, nullptr, &plimit, nullptr));
  std::thread t = Later([&] { (void)!write(p.fd[1], "x", 1); });
  set();
  s->Call("in", select(n, &r, nullptr, nullptr, nullptr));
  sets();
  t.join();
  timeval bad{-1, 0};
  s->Call("bad time", select(n, &r, nullptr, nullptr, &bad));
  close(std::exchange(p.fd[0], -1));
  close(std::exchange(p.fd[1], -1));
  timeval now{};
  FD_ZERO(&r);
  FD_SET(1000, &r);
  s->Call("not open", select(1001, &r, nullptr, nullptr, &now));
  s->Call("below 0", select(-1, nullptr, nullptr, nullptr, &now));
}

// ---- Files

void Files(Seen* s) {
  char name[] = "/tmp/gump_hooks_XXXXXX";
  const int fd = mkstemp(name);
  unlink(name);
  char b[16] = {};
  s->Call("write", write(fd, "abcdef", 6));
  s->Call("pread", pread(fd, b, 4, 2));
  s->Note(b);
  s->Call("past the end", pread(fd, b, 4, 100));
  s->Call("before", pread(fd, b, 4, -1));
  s->Call("seek", lseek(fd, 1, SEEK_SET));
  s->Call("read", read(fd, b, 3));
  s->Call("position", lseek(fd, 0, SEEK_CUR));
  iovec v[2] = {{b, 1}, {b + 1, 9}};
  s->Call("readv", readv(fd, v, 2));
  s->Call("end", read(fd, b, 3));
  s->Call("fsync", fsync(fd));
  s->Call("fdatasync", fdatasync(fd));
  const int dir = open("/tmp", O_RDONLY);
  s->Call("directory", read(dir, b, 4));
  close(dir);
  const int only = open("/dev/null", O_WRONLY);
  s->Call("write only", read(only, b, 4));
  close(only);
  const int event = eventfd(2, EFD_SEMAPHORE);
  uint64_t count;
  s->Call("eventfd", read(event, &count, 8));
  s->Call("short", read(event, &count, 4));
  close(event);
  close(fd);
}

void FileLocks(Seen* s) {
  char name[] = "/tmp/gump_hooks_XXXXXX";
  const int a = mkstemp(name);
  const int b = open(name, O_RDWR);
  unlink(name);
  s->Call("flock", flock(a, LOCK_EX));
  s->Call("held", flock(b, LOCK_EX | LOCK_NB));
  std::thread t = Later([&] { flock(a, LOCK_UN); });
  s->Call("waits", flock(b, LOCK_EX));
  t.join();
  s->Call("bad", flock(a, 77));
  struct flock l {};
  l.l_type = F_WRLCK;
  l.l_whence = SEEK_SET;
  s->Call("own", fcntl(a, F_OFD_SETLKW, &l));
  s->Call("other", fcntl(b, F_OFD_SETLK, &l));
  t = Later([&] {
    struct flock u {};
    u.l_type = F_UNLCK;
    u.l_whence = SEEK_SET;
    fcntl(a, F_OFD_SETLK, &u);
  });
  s->Call("other waits", fcntl(b, F_OFD_SETLKW, &l));
  t.join();
  s->Call("lockf", lockf(a, F_TEST, 1));
  close(a);
  close(b);
}

// ---- Time, conditions, names, children

void Sleeps(Seen* s) {
  const timespec bad{0, -1};
  s->Call("bad", nanosleep(&bad, nullptr));
  const timespec some{0, 2'000'000};
  timespec left{7, 7};
  s->Call("nanosleep", nanosleep(&some, &left));
  s->Note(std::to_string(left.tv_sec));
  s->Note(std::to_string(clock_nanosleep(CLOCK_MONOTONIC, 0, &bad, nullptr)));
  s->Note(std::to_string(clock_nanosleep(CLOCK_MONOTONIC, 0, &some, nullptr)));
  s->Note(std::to_string(clock_nanosleep(77, 0, &some, nullptr)));
  for (const clockid_t clock : {CLOCK_MONOTONIC, CLOCK_REALTIME}) {
    timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += 2'000'000;
    t.tv_sec += t.tv_nsec / 1'000'000'000;
    t.tv_nsec %= 1'000'000'000;
    s->Note(std::to_string(clock_nanosleep(clock, TIMER_ABSTIME, &t, nullptr)));
    timespec now;
    clock_gettime(clock, &now);
    const bool late = now.tv_sec > t.tv_sec ||
                      (now.tv_sec == t.tv_sec && now.tv_nsec >= t.tv_nsec);
    s->Note(late ? "late" : "early");
  }
  s->Call("usleep", usleep(1000));
  s->Note(std::to_string(sleep(0)));
}

void Conditions(Seen* s) {
  pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t c = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&m);
  timespec past{};
  s->Note(std::to_string(pthread_cond_timedwait(&c, &m, &past)));
  s->Note(
      std::to_string(pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &past)));
  timespec bad{1, -1};
  s->Note(std::to_string(pthread_cond_timedwait(&c, &m, &bad)));
  s->Note(std::to_string(pthread_mutex_trylock(&m)));  // still held
  std::thread t = Later([&] {
    pthread_mutex_lock(&m);
    pthread_cond_broadcast(&c);
    pthread_mutex_unlock(&m);
  });
  s->Note(std::to_string(pthread_cond_wait(&c, &m)));
  t.join();
  s->Note(std::to_string(pthread_mutex_unlock(&m)));
  pthread_mutexattr_t checks;
  pthread_mutexattr_init(&checks);
  pthread_mutexattr_settype(&checks, PTHREAD_MUTEX_ERRORCHECK);
  pthread_mutex_t e;
  pthread_mutex_init(&e, &checks);
  if (!kThreadSanitizer) s->Note(std::to_string(pthread_mutex_unlock(&e)));
  pthread_mutex_lock(&e);
  if (!kThreadSanitizer) s->Note(std::to_string(pthread_mutex_lock(&e)));
  s->Note(std::to_string(pthread_cond_timedwait(&c, &e, &past)));
  s->Note(std::to_string(pthread_mutex_unlock(&e)));
  pthread_cond_destroy(&c);
  mtx_t mu;
  cnd_t cnd;
  mtx_init(&mu, mtx_plain);
  cnd_init(&cnd);
  mtx_lock(&mu);
  s->Note(std::to_string(cnd_timedwait(&cnd, &mu, &past)));
  t = Later([&] {
    mtx_lock(&mu);
    cnd_signal(&cnd);
    mtx_unlock(&mu);
  });
  s->Note(std::to_string(cnd_wait(&cnd, &mu)));
  t.join();
  mtx_unlock(&mu);
  cnd_destroy(&cnd);
}

void Names(Seen* s) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  s->Note(std::to_string(getaddrinfo("localhost", "80", &hints, &found)));
  s->Note(found != nullptr ? "found" : "none");
  if (found != nullptr) {
    char host[64];
    s->Note(
        std::to_string(getnameinfo(found->ai_addr, found->ai_addrlen, host,
                                   sizeof(host), nullptr, 0, NI_NUMERICHOST)));
    s->Note(host);
    freeaddrinfo(found);
  }
  found = nullptr;
  hints.ai_flags = AI_NUMERICHOST;
  s->Note(std::to_string(getaddrinfo("no number", "80", &hints, &found)));
  hints.ai_flags = 0;
  hints.ai_family = 9999;
  s->Note(std::to_string(getaddrinfo("localhost", "80", &hints, &found)));
}

void Children(Seen* s) {
  int status = 0;
  s->Call("none", waitpid(getpid(), &status, 0));
  // The child ends a while after `end` has been closed.
  const auto child = [](int code, const Pipe& end) {
    const pid_t pid = fork();
    if (pid == 0) {
      close(end.fd[1]);
      char c;
      while (read(end.fd[0], &c, 1) > 0) {
      }
      usleep(3000);
      _exit(code);
    }
    return pid;
  };
  {
    Pipe end;
    const pid_t pid = child(7, end);
    s->Call("early", waitpid(pid, &status, WNOHANG));
    close(std::exchange(end.fd[1], -1));
    s->Note(waitpid(pid, &status, 0) == pid ? "it" : "other");
    s->Note(std::to_string(WEXITSTATUS(status)));
  }
  Pipe end;
  const pid_t pid = child(8, end);
  close(std::exchange(end.fd[1], -1));
  siginfo_t info{};
  const auto id = static_cast<id_t>(pid);
  s->Call("look", waitid(P_PID, id, &info, WEXITED | WNOWAIT));
  s->Note(std::to_string(info.si_status));
  s->Call("take", waitid(P_PID, id, &info, WEXITED));
  s->Call("gone", waitid(P_PID, id, &info, WEXITED | WNOHANG));
}

constexpr Case kCases[] = {
    {"BadDescriptors", BadDescriptors},
    {"NoSockets", NoSockets},
    {"StreamEnds", StreamEnds},
    {"Datagrams", Datagrams},
    {"Packets", Packets},
    {"Messages", Messages},
    {"Limits", Limits},
    {"NonBlocking", NonBlocking},
    {"Resets", Resets},
    {"Oddities", Oddities},
    {"ClosedPeers", ClosedPeers},
    {"Pieces", Pieces},
    {"DescriptorsTravel", DescriptorsTravel},
    {"Connections", Connections},
    {"Polls", Polls},
    {"Selects", Selects},
    {"Files", Files},
    {"FileLocks", FileLocks},
    {"Sleeps", Sleeps},
    {"Conditions", Conditions},
    {"Names", Names},
    {"Children", Children},
};

class HooksDiffTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::string OnAThread() {
    Seen s;
    std::thread([&] { GetParam().run(&s); }).join();
    return s.text();
  }
};

INSTANTIATE_TEST_SUITE_P(, HooksDiffTest, ::testing::ValuesIn(kCases),
                         [](const auto& c) {
                           return std::string(c.param.name);
                         });

TEST_P(HooksDiffTest, HookedCallsGiveTheResultsOfPlainOnes) {
  ::signal(SIGPIPE, SIG_IGN);
  const std::string plain = OnAThread();
  for (const int procs : {1, 4}) {
    std::string hooked;
    RunWith(procs, [&] {
      Seen s;
      hooks::Hooked([&] { GetParam().run(&s); });
      hooked = s.text();
    });
    EXPECT_EQ(hooked, plain);
    std::string off;
    RunWith(procs, [&] {
      Seen s;
      hooks::Hooked([&] {
        const hooks::Off stay;
        GetParam().run(&s);
      });
      off = s.text();
    });
    EXPECT_EQ(off, plain);
  }
}

}  // namespace
}  // namespace gump::testing
