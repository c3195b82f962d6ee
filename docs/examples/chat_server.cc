// A chat server: each member's lines go to all other members.
//
// One goroutine, the host, owns the list of members, so there is no lock. The
// host puts each line into the queues of the other members, and never waits. If
// a member does not read and its queue is full, the host drops that member.
//
//   chat_server [ADDRESS]        default 127.0.0.1:7777; or unix:PATH
//   nc 127.0.0.1 7777            the first line is your name
#include <gump/gump.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "address.h"

using namespace gump;

namespace {

constexpr size_t kQueue = 64;          // lines
constexpr size_t kLongestLine = 4096;  // bytes

using Line = std::shared_ptr<const std::string>;  // one copy for all

struct Member {
  int id = 0;
  std::string name;
  net::Conn conn;
  chan<Line> queue = make_chan<Line>(kQueue);  // the host closes it
};

struct Said {
  int by;
  std::string text;
};

struct Room {
  chan<Member> join = make_chan<Member>();
  chan<Said> say = make_chan<Said>();
  chan<int> leave = make_chan<int>();
};

void Host(const Room& room) {
  absl::flat_hash_map<int, Member> members;
  const auto tell = [&members](int by, const std::string& text) {
    const auto line = std::make_shared<const std::string>(text + "\n");
    absl::erase_if(members, [&](const auto& entry) {
      const Member& member = entry.second;
      if (member.id == by || member.queue.TrySend(line)) return false;
      std::printf("dropped %s\n", member.name.c_str());
      std::fflush(stdout);
      member.queue.Close();
      (void)member.conn.Close();
      return true;
    });
  };
  for (;;) {
    select(Recv(room.join,
                [&](const Member& member) {
                  tell(member.id, "* " + member.name + " is here");
                  member.queue.Send(std::make_shared<const std::string>(
                      absl::StrCat("* with you: ", members.size(), "\n")));
                  members.emplace(member.id, member);
                }),
           Recv(room.say, [&](const Said& said) { tell(said.by, said.text); }),
           Recv(room.leave, [&](int id) {
             const auto it = members.find(id);
             if (it == members.end()) return;  // the host has dropped it
             const Member member = it->second;
             members.erase(it);
             member.queue.Close();
             tell(id, "* " + member.name + " has left");
           }));
  }
}

// ReadLine takes the next line out of `rest`, which holds the bytes that have
// been read but not used. Returns false at the end of the stream, after an
// error, or if the line is too long.
bool ReadLine(const net::Conn& conn, std::string& rest, std::string& line) {
  size_t lf;
  while ((lf = rest.find('\n')) == rest.npos) {
    char buf[1024];
    const absl::StatusOr<size_t> n = conn.Read(absl::MakeSpan(buf));
    if (!n.ok() || *n == 0 || rest.size() > kLongestLine) return false;
    rest.append(buf, *n);
  }
  line = rest.substr(0, lf);
  rest.erase(0, lf + 1);
  return true;
}

void Serve(const Room& room, Member me) {
  std::string rest, line;
  if (!ReadLine(me.conn, rest, me.name)) return;
  room.join.Send(me);
  go([conn = me.conn, queue = me.queue] {
    for (const Line& heard : queue) {
      if (!conn.Write(*heard).ok()) return;
    }
  });
  while (ReadLine(me.conn, rest, line)) {
    room.say.Send({me.id, me.name + ": " + line});
  }
  room.leave.Send(me.id);
}

int ServeAll(const char* address) {
  const auto [ctx, stop] =
      signal::NotifyContext(context::Background(), {SIGINT, SIGTERM});
  const absl::StatusOr<net::Listener> listener = ListenAt(address);
  if (!listener.ok()) {
    std::fprintf(stderr, "%s\n", listener.status().ToString().c_str());
    return 1;
  }
  context::AfterFunc(ctx, [l = *listener] { (void)l.Close(); });
  const Room room;
  go([room] { Host(room); });
  for (int id = 0; ctx.Err().ok();) {
    const absl::StatusOr<net::Conn> conn = listener->Accept();
    if (conn.ok()) {
      go([room, me = Member{id++, "", *conn}] { Serve(room, me); });
    } else {
      time::Sleep(absl::Milliseconds(5));  // perhaps no descriptor is free
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return Run([address = argc > 1 ? argv[1] : "127.0.0.1:7777"] {
    return ServeAll(address);
  });
}
