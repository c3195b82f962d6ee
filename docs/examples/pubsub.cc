// A broker without locks. One goroutine owns the list of subscribers, and all
// requests reach it over channels. It sends each message to every subscriber
// with a select, so a subscriber that leaves in the middle never holds up the
// rest.
//
//   pubsub [SUBSCRIBERS [MESSAGES]]
//
// The default is 10 subscribers and 1000 messages.
#include <gump/gump.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace gump;

namespace {

struct Subscriber {
  chan<int> inbox = make_chan<int>();
  // The subscriber closes it when it wants no more messages.
  chan<void> gone = make_chan<void>();
};

// Broker serves until publish is closed. Then it closes the inboxes of the
// subscribers that are left.
void Broker(recv_chan<Subscriber> subscribe, recv_chan<int> publish) {
  std::vector<Subscriber> subscribers;
  auto deliver = [&subscribers](int message) {
    std::erase_if(subscribers, [message](Subscriber& s) {
      const int left = select(Send(s.inbox, message), Recv(s.gone));
      return left == 1;
    });
  };
  bool open = true;
  while (open) {
    select(Recv(subscribe, [&](Subscriber s) { subscribers.push_back(s); }),
           Recv(publish, [&](int message, bool ok) {
             ok ? deliver(message) : void(open = false);
           }));
  }
  for (Subscriber& s : subscribers) s.inbox.Close();
}

}  // namespace

int main(int argc, char** argv) {
  const int subscribers = argc > 1 ? std::atoi(argv[1]) : 10;
  const int messages = argc > 2 ? std::atoi(argv[2]) : 1000;
  return Run([subscribers, messages] {
    chan<Subscriber> subscribe = make_chan<Subscriber>();
    chan<int> publish = make_chan<int>();
    chan<int> received = make_chan<int>();
    go(Broker, subscribe, publish);
    for (int i = 0; i < subscribers; i++) {
      Subscriber me;
      subscribe.Send(me);
      // Every second subscriber leaves half-way.
      const int enough = i % 2 == 0 ? messages : messages / 2;
      go([me, received, enough] {
        int count = 0;
        while (count < enough && me.inbox.Recv()) count++;
        me.gone.Close();
        received.Send(count);
      });
    }
    for (int m = 0; m < messages; m++) publish.Send(m);
    publish.Close();
    int total = 0;
    for (int i = 0; i < subscribers; i++) total += *received.Recv();
    std::printf("%d subscribers received %d messages\n", subscribers, total);
  });
}
