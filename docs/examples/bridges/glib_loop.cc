// A main loop of GLib in a goroutine, which other goroutines use.
//
//   glib_loop [goroutines]
//
// A GMainContext belongs to the thread that runs it. A runtime::Thread is such
// a thread. Its loop waits by os::Poll, so it parks, and goroutines that are on
// the same Thread run meanwhile. Qt's event dispatcher on Linux is a loop of
// GLib, too.
#include <glib.h>
#include <poll.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gump/gump.h"

using namespace gump;

namespace {

// PollByGoroutine is the poll function of a GMainContext. It may park, because
// GLib gives back the lock of the context before it calls this function.
gint PollByGoroutine(GPollFD* fds, guint n, gint ms) {
  static_assert(sizeof(GPollFD) == sizeof(pollfd));
  const absl::Duration limit =
      ms < 0 ? absl::InfiniteDuration() : absl::Milliseconds(ms);
  const auto ready =
      os::Poll(absl::MakeSpan(reinterpret_cast<pollfd*>(fds), n), limit);
  return ready.ok() ? *ready : -1;
}

// Post has the loop call f, once. It may be called from any goroutine or
// thread, and never waits.
//
// No call is lost: the source is in the list of the context before the loop is
// woken, and the wake-up is kept in a descriptor that the loop polls. So the
// loop sees the source before it polls, or Poll returns. g_source_attach wakes
// the loop only if the caller is on another thread. But a goroutine of the same
// runtime::Thread may call Post while the loop is parked, so Post itself wakes
// the loop. GLib destroys f on the loop's thread after the call, or with the
// context if the loop never ran it.
template <class F>
void Post(GMainContext* context, F f) {
  g_main_context_ref(context);  // f may be the last that the loop runs
  GSource* source = g_idle_source_new();
  g_source_set_priority(source, G_PRIORITY_DEFAULT);
  g_source_set_callback(
      source,
      [](gpointer call) -> gboolean {
        (*static_cast<F*>(call))();
        return G_SOURCE_REMOVE;
      },
      new F(std::move(f)), [](gpointer call) { delete static_cast<F*>(call); });
  g_source_attach(source, context);
  g_source_unref(source);
  g_main_context_wakeup(context);
  g_main_context_unref(context);
}

// Ask has the loop call f, and waits for the result. Returns nullopt if the
// context was destroyed before. The channel has room, so the loop never waits
// for the goroutine.
template <class F>
auto Ask(GMainContext* context, F f) {
  using R = std::invoke_result_t<F>;
  struct Call {
    Call(F function, chan<R> c) : f(std::move(function)), answer(c) {}
    ~Call() { answer.Close(); }  // a value that was sent is still received
    F f;
    chan<R> answer;
  };
  chan<R> answer = make_chan<R>(1);
  Post(context, [call = std::make_shared<Call>(std::move(f), answer)] {
    call->answer.Send(call->f());
  });
  return answer.Recv();
}

void Main(int goroutines) {
  GMainContext* context = g_main_context_new();
  GMainLoop* loop = g_main_loop_new(context, FALSE);
  g_main_context_set_poll_func(context, PollByGoroutine);

  runtime::Thread thread("glib");
  sync::WaitGroup running;
  running.Add(1);
  go(GoOptions{.thread = &thread}, [&] {
    g_main_context_push_thread_default(context);
    g_main_loop_run(loop);
    g_main_context_pop_thread_default(context);
    running.Done();
  });

  // Goroutines ask the loop. Only functions on the loop touch `total`.
  int total = 0;
  std::atomic<int> answered = 0;
  sync::WaitGroup wg;
  for (int i = 0; i < goroutines; i++) {
    wg.Go([&] {
      for (int k = 0; k < 100; k++) {
        if (Ask(context, [&total] { return ++total; })) answered++;
      }
    });
  }
  wg.Wait();
  std::printf("%d calls, %s\n", answered.load(),
              answered == total ? "all answered" : "some lost");

  // The loop asks a goroutine: a callback starts it, and it posts its result.
  chan<int> done = make_chan<int>(1);
  Post(context, [context, done] {
    go([context, done] {
      time::Sleep(absl::Milliseconds(1));  // work that waits
      Post(context, [done] { done.Send(42); });
    });
  });
  std::printf("the goroutine answered %d\n", done.Recv().value_or(0));

  // While the loop waits, other goroutines have its thread, and may ask it.
  const auto beside =
      thread.Run([&] { return Ask(context, [] { return 43; }); });
  std::printf("on the loop's own thread: %d\n", beside.value_or(0));

  Post(context, [loop] { g_main_loop_quit(loop); });
  running.Wait();
  g_main_loop_unref(loop);
  g_main_context_unref(context);
}

}  // namespace

int main(int argc, char** argv) {
  const int goroutines = argc > 1 ? std::atoi(argv[1]) : 50;
  return Run([&] { Main(goroutines); });
}
