// A client of Redis (RESP2) that can pipeline: it sends several commands before
// it reads the answers, which come in the order of the commands.
//
//   redis_client ADDRESS [COMMAND [ARGUMENT]...]    such as 127.0.0.1:6379
//
// Without a command it shows counting, a pipeline, and a list: one goroutine
// waits for the list while another fills it.
#include <gump/gump.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "address.h"

using namespace gump;

namespace {

using Answer = absl::StatusOr<std::string>;

class Redis {
 public:
  explicit Redis(net::Conn conn) : conn_(std::move(conn)) {}

  absl::Status Send(const std::vector<std::string>& command) {
    std::string text = absl::StrCat("*", command.size(), "\r\n");
    for (const std::string& word : command) {
      absl::StrAppend(&text, "$", word.size(), "\r\n", word, "\r\n");
    }
    return conn_.Write(text).status();
  }

  // Receive returns the next answer. If that is a list, Receive returns its
  // items, separated by spaces.
  Answer Receive() {
    const Answer line = Line();
    if (!line.ok()) return line;
    const std::string rest = line->substr(1);
    const int n = std::atoi(rest.c_str());
    switch (line->front()) {
      case '-':
        return absl::AbortedError(rest);
      case '$':
        return n < 0 ? "(nil)" : Bytes(static_cast<size_t>(n));
      case '*':
        return n < 0 ? "(nil)" : List(n);
    }
    return rest;
  }

  Answer Do(const std::vector<std::string>& command) {
    const absl::Status s = Send(command);
    return s.ok() ? Receive() : s;
  }

 private:
  Answer List(int n) {
    std::string all;
    for (int i = 0; i < n; i++) {
      const Answer item = Receive();
      if (!item.ok()) return item;
      absl::StrAppend(&all, i > 0 ? " " : "", *item);
    }
    return all;
  }
  Answer Line() {
    size_t end;
    while ((end = in_.find("\r\n")) == in_.npos || end == 0) {
      const absl::Status s = end == 0 ? absl::DataLossError("no RESP") : Fill();
      if (!s.ok()) return s;
    }
    return Bytes(end);
  }
  Answer Bytes(size_t n) {
    while (in_.size() < n + 2) {
      if (const absl::Status s = Fill(); !s.ok()) return s;
    }
    const std::string bytes = in_.substr(0, n);
    in_.erase(0, n + 2);
    return bytes;
  }
  absl::Status Fill() {
    char buf[4096];
    const absl::StatusOr<size_t> n = conn_.Read(absl::MakeSpan(buf));
    if (n.ok()) in_.append(buf, *n);
    if (n.ok() && *n == 0) return absl::DataLossError("the server hung up");
    return n.status();
  }

  net::Conn conn_;
  std::string in_;  // received, but not used yet
};

template <class T>
T Must(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

void Show(const char* address) {
  Redis redis(Must(DialAt(address)));
  Must(redis.Do({"DEL", "gophers", "burrow"}));
  for (int i = 0; i < 1000; i++) (void)redis.Send({"INCR", "gophers"});
  for (int i = 0; i < 999; i++) Must(redis.Receive());
  std::printf("%s gophers", Must(redis.Receive()).c_str());
  go([address] {
    Redis other(Must(DialAt(address)));
    for (int i = 0; i < 100; i++) Must(other.Do({"RPUSH", "burrow", "carrot"}));
  });
  int carrots = 0;
  while (carrots < 100) {
    carrots += Must(redis.Do({"BLPOP", "burrow", "0"})) == "burrow carrot";
  }
  std::printf(" have eaten %d carrots\n", carrots);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: redis_client ADDRESS [COMMAND...]\n");
    return 2;
  }
  return Run([argc, argv] {
    if (argc == 2) return Show(argv[1]);
    Redis redis(Must(DialAt(argv[1])));
    std::puts(Must(redis.Do({argv + 2, argv + argc})).c_str());
  });
}
