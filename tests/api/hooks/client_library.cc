// A client of the tests that is a library of its own, and knows nothing of
// goroutines.
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace {

int resultOfConstructor = -1;

// Calls in a constructor come before the runtime has started, and while the
// loader holds its lock.
[[gnu::constructor]] void CallEarly() {
  int p[2];
  char c = 0;
  if (pipe(p) != 0 || write(p[1], "x", 1) != 1) return;
  pollfd ready{p[0], POLLIN, 0};
  if (poll(&ready, 1, -1) != 1 || read(p[0], &c, 1) != 1) return;
  close(p[0]);
  close(p[1]);
  usleep(1);
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
  const timespec passed{1, 0};
  pthread_mutex_lock(&mutex);
  const int err = pthread_cond_timedwait(&cond, &mutex, &passed);
  pthread_mutex_unlock(&mutex);
  if (err == ETIMEDOUT) resultOfConstructor = c;
}

// The queue of errors, as OpenSSL has one for each thread.
thread_local unsigned long lastError;

}  // namespace

extern "C" {

int ClientConstructed() { return resultOfConstructor; }

int ClientReceive(int fd) {
  char c = 0;
  return recv(fd, &c, 1, 0) == 1 ? c : -1;
}

int ClientSend(int fd, char c) { return static_cast<int>(send(fd, &c, 1, 0)); }

// ClientEchoOnThread starts a thread that sends back each byte, until the end.
void ClientEchoOnThread(int fd) {
  std::thread([fd] {
    for (int c; (c = ClientReceive(fd)) > 0;) {
      ClientSend(fd, static_cast<char>(c));
    }
    close(fd);
  }).detach();
}

void ClientFails() { lastError = 1; }
unsigned long ERR_peek_error() { return lastError; }
void ERR_clear_error() { lastError = 0; }
}
