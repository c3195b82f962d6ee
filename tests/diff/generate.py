#!/usr/bin/env python3
"""Random concurrent programs, each in C++ and in Go, and how they must end.

generate.py FIRST LAST FOLDER writes, for the seeds from FIRST to LAST, the programs to FOLDER/cc and FOLDER/go, and their
outcomes to FOLDER/expected.json.

A program is a network of goroutines between which multisets of numbers flow, some smaller pieces, and an ending. The
outcome is the same for every schedule, because
  - the result of a node for a number depends on that number alone, and no node depends on the order of the numbers.
  - every node always takes the numbers that come, and nothing flows in a circle, so no goroutine waits for ever (until the
    ending). Of two goroutines at a channel without a buffer only one may just try. Otherwise neither would ever find the
    other there.
  - what a piece emits is fixed by the events before it.
So the generator, which computes with the same numbers, knows the outcome, and a Go toolchain is a second opinion. Programs
avoid the changes between Go 1.19 and now. They do not ask a timer that was stopped or has fired for its value. A program
in which all goroutines come to sleep has no timers.
"""

import json
import pathlib
import random
import string
import sys

MOD = 1000003
PROGRAMS_A_FILE = 50


class Program:
    """One program: its text in both languages, and its expected outcome."""

    def __init__(self, seed):
        self.seed = seed
        self.rng = random.Random(seed)
        self.cc = []
        self.go = []
        self.lines = []  # expected output, before sorting
        self.names = 0
        self.tags = 0
        self.tried = set()  # unbuffered channels to which the sender sends by TrySend only
        self.ending = self.rng.choice(ENDINGS)
        self.timers = not self.ending.__name__.startswith("asleep")

    # -- text

    def name(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def tag(self):
        self.tags += 1
        return self.tags

    def add(self, cc, go, **words):
        self.cc.append(string.Template(cc).substitute(words))
        self.go.append(string.Template(go).substitute(words))

    def emit(self, tag, value):
        self.lines.append(f"{tag} {value}")

    def chan(self, tried=False):
        c, cap = self.name("c"), self.rng.choice([0, 0, 1, 2, 7])
        if tried and cap == 0:
            self.tried.add(c)
        self.add("auto $c = make_chan<I>($n);", "$c := make(chan int64, $n)", c=c, n=cap)
        return c

    def group(self):
        w = self.name("w")
        self.add("auto $w = NewWG();", "$w := &sync.WaitGroup{}", w=w)
        return w

    def lock(self):
        k = self.name("k")
        self.add("auto $k = NewLock();", "$k := NewLock()", k=k)
        return k

    def func(self):
        """A function of one number: as text over `v`, which both languages read the same, and as itself."""
        a, b = self.rng.randrange(1, 1000), self.rng.randrange(1000)
        return f"(v*{a}+{b})%{MOD}", lambda v: (v * a + b) % MOD

    def close_after(self, w, c):
        self.add("Go([=] { $w->Wait(); $c.Close(); });", "go func() { $w.Wait(); close($c) }()", w=w, c=c)

    # -- the program

    def write(self):
        for _ in range(self.rng.randrange(3)):
            self.rng.choice(PIECES)(self)
        network(self)
        for _ in range(self.rng.randrange(3)):
            self.rng.choice(PIECES)(self)
        self.add("out.Print();", "out.Print()")
        code, first = self.ending(self)
        return {"stdout": sorted(self.lines), "code": code, "stderr": first}


# ---- Sources: values into a new channel, which is closed in the end ----------


def source_loop(p):
    c, n = p.chan(), p.rng.randrange(30)
    text, f = p.func()
    p.add("Go([=] { for (I v = 0; v < $n; v++) $c.Send($f); $c.Close(); });",
          "go func() { for v := int64(0); v < $n; v++ { $c <- $f }; close($c) }()", c=c, n=n, f=text)
    return c, [f(v) for v in range(n)]


def source_many(p):
    c, w, n = p.chan(), p.group(), p.rng.randrange(1, 20)
    text, f = p.func()
    p.add("for (I v = 0; v < $n; v++) { $w->Add(1); Go([=] { $c.Send($f); $w->Done(); }); }",
          "for v := int64(0); v < $n; v++ { v := v; $w.Add(1); go func() { $c <- $f; $w.Done() }() }",
          c=c, w=w, n=n, f=text)
    p.close_after(w, c)
    return c, [f(v) for v in range(n)]


def source_cancelled(p):
    """The first n of an endless sequence; then its producer is cancelled."""
    inner, c, x, n = p.chan(), p.chan(), p.name("x"), p.rng.randrange(1, 20)
    text, f = p.func()
    p.add("""auto p$x = context::WithCancel(context::Background()); auto $x = p$x.first; auto s$x = p$x.second;
  Go([=] { for (I v = 0;; v++) { bool stop = false;
    select(Send($i, I{$f}), OnDone($x.Done(), [&] { stop = true; }));
    if (stop) return; } });
  Go([=] { for (int i = 0; i < $n; i++) $c.Send(*$i.Recv()); s$x(); $c.Close(); });""",
          """$x, s$x := context.WithCancel(context.Background())
  go func() { for v := int64(0); ; v++ {
    select { case $i <- $f: case <-$x.Done(): return } } }()
  go func() { for i := 0; i < $n; i++ { $c <- <-$i }; s$x(); close($c) }()""", i=inner, c=c, x=x, n=n, f=text)
    return c, [f(v) for v in range(n)]


def source_recovered(p):
    """One value in three panics, and the recovering goroutine sends another value."""
    c, n = p.chan(), p.rng.randrange(20)
    p.add("""Go([=] { for (I v = 0; v < $n; v++) {
    try { if (v % 3 == 0) panic("odd"); $c.Send(v); } catch (const PanicError& e) { $c.Send(1000 + v); } }
    $c.Close(); });""",
          """go func() { for v := int64(0); v < $n; v++ { func() {
    defer func() { if recover() != nil { $c <- 1000 + v } }()
    if v%3 == 0 { panic("odd") }
    $c <- v }() }
    close($c) }()""", c=c, n=n)
    return c, [1000 + v if v % 3 == 0 else v for v in range(n)]


def source_queue(p):
    """Several goroutines fill a queue under a mutex, and one sends its values."""
    c, w, k, n = p.chan(), p.group(), p.lock(), p.rng.randrange(1, 8)
    p.add("""for (I v = 0; v < $n; v++) { $w->Add(1); Go([=] {
    $k->mu.Lock(); $k->queue.push_back(v); $k->mu.Unlock(); $w->Done(); }); }
  Go([=] { $w->Wait(); for (I v : $k->queue) $c.Send(v); $c.Close(); });""",
          """for v := int64(0); v < $n; v++ { v := v; $w.Add(1); go func() {
    $k.mu.Lock(); $k.queue = append($k.queue, v); $k.mu.Unlock(); $w.Done() }() }
  go func() { $w.Wait(); for _, v := range $k.queue { $c <- v }; close($c) }()""", c=c, w=w, k=k, n=n)
    return c, list(range(n))


def source_once(p):
    c, w, k, n = p.chan(), p.group(), p.lock(), p.rng.randrange(1, 8)
    p.add("""for (I v = 0; v < $n; v++) { $w->Add(1); Go([=] {
    $k->once.Do([&] { $c.Send(777); }); $c.Send(v); $w->Done(); }); }""",
          """for v := int64(0); v < $n; v++ { v := v; $w.Add(1); go func() {
    $k.once.Do(func() { $c <- 777 }); $c <- v; $w.Done() }() }""", c=c, w=w, k=k, n=n)
    p.close_after(w, c)
    return c, [777] + list(range(n))


def source_timers(p):
    if not p.timers:
        return source_loop(p)
    c, w, n = p.chan(), p.group(), p.rng.randrange(1, 5)
    p.add("""for (I v = 0; v < $n; v++) { $w->Add(1);
    After(absl::Microseconds(100 * (v % 3)), [=] { $c.Send(v); $w->Done(); }); }""",
          """for v := int64(0); v < $n; v++ { v := v; $w.Add(1)
    time.AfterFunc(time.Duration(100*(v%3))*time.Microsecond, func() { $c <- v; $w.Done() }) }""", c=c, w=w, n=n)
    p.close_after(w, c)
    return c, list(range(n))


def source_ticker(p):
    if not p.timers:
        return source_many(p)
    c, n = p.chan(), p.rng.randrange(1, 4)
    p.add("""Go([=] { auto t = time::NewTicker(absl::Microseconds(300));
    for (I v = 0; v < $n; v++) { t.C.Recv(); $c.Send(v); } t.Stop(); $c.Close(); });""",
          """go func() { t := time.NewTicker(300 * time.Microsecond)
    for v := int64(0); v < $n; v++ { <-t.C; $c <- v }; t.Stop(); close($c) }()""", c=c, n=n)
    return c, list(range(n))


def source_sleepers(p):
    if not p.timers:
        return source_many(p)
    c, w, n = p.chan(), p.group(), p.rng.randrange(1, 10)
    p.add("""for (I v = 0; v < $n; v++) GoIn($w, [=] { time::Sleep(absl::Microseconds(v * 37)); $c.Send(v); });""",
          """for v := int64(0); v < $n; v++ { v := v; $w.Add(1); go func() {
    defer $w.Done(); time.Sleep(time.Duration(v*37) * time.Microsecond); $c <- v }() }""", c=c, w=w, n=n)
    p.close_after(w, c)
    return c, list(range(n))


SOURCES = [source_loop, source_many, source_cancelled, source_recovered, source_queue, source_once, source_timers,
           source_ticker, source_sleepers]

# ---- Nodes: (channel, values) to (channel, values) ---------------------------


def node_map(p, c, values):
    d = p.chan()
    text, f = p.func()
    p.add("Go([=] { for (I v : $c) $d.Send($f); $d.Close(); });",
          "go func() { for v := range $c { $d <- $f }; close($d) }()", c=c, d=d, f=text)
    return d, [f(v) for v in values]


def node_pool(p, c, values):
    d, w, n = p.chan(), p.group(), p.rng.randrange(1, 9)
    text, f = p.func()
    p.add("for (int i = 0; i < $n; i++) GoIn($w, [=] { while (auto r = $c.Recv()) { I v = *r; $d.Send($f); } });",
          """for i := 0; i < $n; i++ { $w.Add(1); go func() { defer $w.Done(); for { v, ok := <-$c
    if !ok { return }
    $d <- $f } }() }""", c=c, d=d, w=w, n=n, f=text)
    p.close_after(w, d)
    return d, [f(v) for v in values]


def node_filter(p, c, values):
    d, m = p.chan(), p.rng.randrange(2, 5)
    p.add("Go([=] { I v; while ($c >> v) { if (v % $m == 0) continue; $d << v; } $d.Close(); });",
          "go func() { for v := range $c { if v%$m == 0 { continue }; $d <- v }; close($d) }()", c=c, d=d, m=m)
    return d, [v for v in values if v % m != 0]


def node_sum(p, c, values):
    d = p.chan()
    p.add("Go([=] { I sum = 0; for (I v : $c) sum += v; $d.Send(sum); $d.Close(); });",
          "go func() { sum := int64(0); for v := range $c { sum += v }; $d <- sum; close($d) }()", c=c, d=d)
    return d, [sum(values)]


def node_spawn(p, c, values):
    """A goroutine for each value."""
    d, w = p.chan(), p.group()
    text, f = p.func()
    p.add("""Go([=] { for (I v : $c) { $w->Add(1); Go([=] { runtime::Gosched(); $d.Send($f); $w->Done(); }); }
    $w->Wait(); $d.Close(); });""",
          """go func() { for v := range $c { v := v; $w.Add(1); go func() { runtime.Gosched(); $d <- $f; $w.Done() }() }
    $w.Wait(); close($d) }()""", c=c, d=d, w=w, f=text)
    return d, [f(v) for v in values]


def node_limited(p, c, values):
    """As node_spawn, but with a limit on the goroutines at a time."""
    d, w, s, n = p.chan(), p.group(), p.name("s"), p.rng.randrange(1, 4)
    text, f = p.func()
    p.add("""auto $s = make_chan<void>($n);
  Go([=] { for (I v : $c) { $s.Send(); GoIn($w, [=] { $d.Send($f); $s.Recv(); }); } $w->Wait(); $d.Close(); });""",
          """$s := make(chan struct{}, $n)
  go func() { for v := range $c { v := v; $s <- struct{}{}; $w.Add(1)
    go func() { defer $w.Done(); $d <- $f; <-$s }() }; $w.Wait(); close($d) }()""", c=c, d=d, w=w, s=s, n=n, f=text)
    return d, [f(v) for v in values]


def node_server(p, c, values):
    """Clients that ask a server, with a channel for the answer."""
    d, w, r, n = p.chan(), p.group(), p.name("r"), p.rng.randrange(1, 5)
    text, f = p.func()
    p.add("""auto $r = make_chan<Request>($m);
  Go([=] { for (Request q : $r) { I v = q.v; q.reply.Send($f); } });
  for (int i = 0; i < $n; i++) GoIn($w, [=] { auto reply = make_chan<I>();
    for (I v : $c) { $r.Send({v, reply}); $d.Send(*reply.Recv()); } });
  Go([=] { $w->Wait(); $r.Close(); $d.Close(); });""",
          """$r := make(chan Request, $m)
  go func() { for q := range $r { v := q.v; q.reply <- $f } }()
  for i := 0; i < $n; i++ { $w.Add(1); go func() { defer $w.Done(); reply := make(chan int64)
    for v := range $c { $r <- Request{v, reply}; $d <- <-reply } }() }
  go func() { $w.Wait(); close($r); close($d) }()""", c=c, d=d, w=w, r=r, n=n, m=p.rng.randrange(3), f=text)
    return d, [f(v) for v in values]


def node_polling(p, c, values):
    if c in p.tried:
        return node_map(p, c, values)
    d = p.chan()
    p.add("""Go([=] { for (bool more = true; more;) {
    select(OnRecv($c, [&](I v, bool ok) { more = ok; if (ok) $d.Send(v); }), Otherwise([] { runtime::Gosched(); })); }
    $d.Close(); });""",
          """go func() { for more := true; more; {
    select { case v, ok := <-$c: more = ok; if ok { $d <- v }
    default: runtime.Gosched() } }
    close($d) }()""", c=c, d=d)
    return d, values


def node_trysend(p, c, values):
    d = p.chan(tried=True)
    p.add("Go([=] { for (I v : $c) while (!$d.TrySend(v)) runtime::Gosched(); $d.Close(); });",
          """go func() { for v := range $c { for sent := false; !sent; {
    select { case $d <- v: sent = true
    default: runtime.Gosched() } } }; close($d) }()""", c=c, d=d)
    return d, values


def node_cond(p, c, values):
    """A queue with a condition variable between two goroutines."""
    d, k = p.chan(), p.lock()
    p.add("""Go([=] { for (I v : $c) { $k->mu.Lock(); $k->queue.push_back(v); $k->mu.Unlock(); $k->cond.Signal(); }
    $k->mu.Lock(); $k->done = true; $k->mu.Unlock(); $k->cond.Broadcast(); });
  Go([=] { for (;;) { $k->mu.Lock(); while ($k->queue.empty() && !$k->done) $k->cond.Wait();
      std::vector<I> got; got.swap($k->queue); bool done = $k->done; $k->mu.Unlock();
      for (I v : got) $d.Send(v);
      if (done && got.empty()) break; }
    $d.Close(); });""",
          """go func() { for v := range $c { $k.mu.Lock(); $k.queue = append($k.queue, v); $k.mu.Unlock(); $k.cond.Signal() }
    $k.mu.Lock(); $k.done = true; $k.mu.Unlock(); $k.cond.Broadcast() }()
  go func() { for { $k.mu.Lock(); for len($k.queue) == 0 && !$k.done { $k.cond.Wait() }
      got := $k.queue; $k.queue = nil; done := $k.done; $k.mu.Unlock()
      for _, v := range got { $d <- v }
      if done && len(got) == 0 { break } }
    close($d) }()""", c=c, d=d, k=k)
    return d, values


def node_timeout(p, c, values):
    """A select with a timer that is far away."""
    if not p.timers:
        return node_map(p, c, values)
    d = p.chan()
    p.add("""Go([=] { for (bool more = true; more;) { auto t = time::NewTimer(absl::Hours(1));
    select(OnRecv($c, [&](I v, bool ok) { more = ok; if (ok) $d.Send(v); }), OnTime(t.C, [&] { $d.Send(-1); }));
    t.Stop(); } $d.Close(); });""",
          """go func() { for more := true; more; { t := time.NewTimer(time.Hour)
    select { case v, ok := <-$c: more = ok; if ok { $d <- v }
    case <-t.C: $d <- -1 }
    t.Stop() }; close($d) }()""", c=c, d=d)
    return d, values


def node_deadline(p, c, values):
    """Works beside a context that is cancelled when all is done."""
    d, x = p.chan(), p.name("x")
    p.add("""auto p$x = context::WithCancel(context::Background()); auto $x = p$x.first; auto s$x = p$x.second;
  Go([=] { for (bool more = true; more;) select(OnRecv($c, [&](I v, bool ok) { more = ok; if (ok) $d.Send(v); }),
      OnDone($x.Done(), [&] { $d.Send(-1); more = false; }));
    s$x(); $x.Done().Recv(); $d.Close(); });""",
          """$x, s$x := context.WithCancel(context.Background())
  go func() { for more := true; more; { select { case v, ok := <-$c: more = ok; if ok { $d <- v }
      case <-$x.Done(): $d <- -1; more = false } }
    s$x(); <-$x.Done(); close($d) }()""", c=c, d=d, x=x)
    return d, values


NODES = [node_map, node_pool, node_filter, node_sum, node_spawn, node_limited, node_server, node_polling, node_trysend,
         node_cond, node_timeout, node_deadline]

# ---- Joints: several channels to one -----------------------------------------


def join_select(p, a, b):
    d = p.chan()
    p.add("""Go([=] { C a = $a, b = $b; while (a || b) select(
      OnRecv(a, [&](I v, bool ok) { if (ok) $d.Send(v); else a = C(); }),
      OnRecv(b, [&](I v, bool ok) { if (ok) $d.Send(v); else b = C(); }));
    $d.Close(); });""",
          """go func() { a, b := $a, $b; for a != nil || b != nil { select {
      case v, ok := <-a: if ok { $d <- v } else { a = nil }
      case v, ok := <-b: if ok { $d <- v } else { b = nil } } }
    close($d) }()""", a=a[0], b=b[0], d=d)
    return d, a[1] + b[1]


def join_forward(p, a, b):
    d, w = p.chan(), p.group()
    p.add("for (C c : {$a, $b}) GoIn($w, [=] { for (I v : c) $d.Send(v); });",
          "for _, c := range []chan int64{$a, $b} { c := c; $w.Add(1); go func() { defer $w.Done(); for v := range c { $d <- v } }() }",
          a=a[0], b=b[0], d=d, w=w)
    p.close_after(w, d)
    return d, a[1] + b[1]


def join_dynamic(p, a, b):
    d = p.chan()
    p.add("""Go([=] { C in[2] = {$a, $b}; for (int open = 2; open > 0;) { I v = 0; bool ok = false;
      std::vector<SelectCase> cases; for (C& c : in) cases.push_back(Recv(c, &v, &ok));
      int i = select(absl::MakeSpan(cases)); if (ok) { $d.Send(v); } else { in[i] = C(); open--; } }
    $d.Close(); });""",
          """go func() { in := []chan int64{$a, $b}; for open := 2; open > 0; {
      cases := []reflect.SelectCase{}; for _, c := range in {
        cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}) }
      i, v, ok := reflect.Select(cases); if ok { $d <- v.Int() } else { in[i] = nil; open-- } }
    close($d) }()""", a=a[0], b=b[0], d=d)
    return d, a[1] + b[1]


JOINTS = [join_select, join_forward, join_dynamic]


def split(p, c, values):
    a, b = p.chan(), p.chan()
    p.add("Go([=] { for (I v : $c) (v % 2 == 0 ? $a : $b).Send(v); $a.Close(); $b.Close(); });",
          "go func() { for v := range $c { if v%2 == 0 { $a <- v } else { $b <- v } }; close($a); close($b) }()",
          a=a, b=b, c=c)
    return [(a, [v for v in values if v % 2 == 0]), (b, [v for v in values if v % 2 != 0])]


def tee(p, c, values):
    """Sends every value to both channels, in the order in which they take it."""
    a, b = p.chan(), p.chan()
    p.add("""Go([=] { for (I v : $c) { C a = $a, b = $b; for (int i = 0; i < 2; i++)
      select(OnSend(a, v, [&] { a = C(); }), OnSend(b, v, [&] { b = C(); })); } $a.Close(); $b.Close(); });""",
          """go func() { for v := range $c { a, b := $a, $b; for i := 0; i < 2; i++ {
      select { case a <- v: a = nil
      case b <- v: b = nil } } }; close($a); close($b) }()""", a=a, b=b, c=c)
    return [(a, list(values)), (b, list(values))]


# ---- Sinks: what comes out is emitted before the program goes on -------------


def sink_each(p, c, values):
    t = p.tag()
    p.add("for (I v : $c) out.Emit($t, v);", "for v := range $c { out.Emit($t, v) }", c=c, t=t)
    for v in values:
        p.emit(t, v)


def sink_sum(p, c, values):
    t, k, w, n = p.tag(), p.lock(), p.group(), p.rng.randrange(1, 5)
    p.add("""for (int i = 0; i < $n; i++) GoIn($w, [=] { for (I v : $c) { $k->mu.Lock(); $k->n += v; $k->mu.Unlock(); } });
  $w->Wait(); out.Emit($t, $k->n);""",
          """for i := 0; i < $n; i++ { $w.Add(1); go func() { defer $w.Done()
    for v := range $c { $k.mu.Lock(); $k.n += v; $k.mu.Unlock() } }() }
  $w.Wait(); out.Emit($t, $k.n)""", c=c, t=t, k=k, w=w, n=n)
    p.emit(t, sum(values))


def sink_table(p, c, values):
    """Counts values in a map under a read-write lock."""
    t, k, w = p.tag(), p.lock(), p.group()
    p.add("""for (int i = 0; i < 3; i++) GoIn($w, [=] { for (I v : $c) {
    $k->rw.Lock(); $k->table[v % 10]++; $k->x++; $k->y++; $k->rw.Unlock();
    $k->rw.RLock(); if ($k->x != $k->y) std::abort(); $k->rw.RUnlock(); } });
  $w->Wait(); for (auto& [v, n] : $k->table) out.Emit($t, v * 1000 + n);""",
          """for i := 0; i < 3; i++ { $w.Add(1); go func() { defer $w.Done(); for v := range $c {
    $k.rw.Lock(); $k.table[v%10]++; $k.x++; $k.y++; $k.rw.Unlock()
    $k.rw.RLock(); if $k.x != $k.y { os.Exit(9) }; $k.rw.RUnlock() } }() }
  $w.Wait(); for v, n := range $k.table { out.Emit($t, v*1000+n) }""", c=c, t=t, k=k, w=w)
    for digit in set(v % 10 for v in values):
        p.emit(t, digit * 1000 + sum(v % 10 == digit for v in values))


SINKS = [sink_each, sink_each, sink_sum, sink_table]


def network(p):
    """Every edge always has a taker, because sinks run side by side."""
    edges = [p.rng.choice(SOURCES)(p) for _ in range(p.rng.randrange(1, 4))]
    for _ in range(p.rng.randrange(7)):
        p.rng.shuffle(edges)
        kind = p.rng.randrange(6)
        if kind == 0 and len(edges) < 5:
            edges += p.rng.choice([split, tee])(p, *edges.pop())
        elif kind <= 2 and len(edges) > 1:
            edges.append(p.rng.choice(JOINTS)(p, edges.pop(), edges.pop()))
        else:
            edges.append(p.rng.choice(NODES)(p, *edges.pop()))
    w = p.group()
    for edge in edges:
        p.add("GoIn($w, [=, &out] {", "$w.Add(1); go func() { defer $w.Done()", w=w)
        p.rng.choice(SINKS)(p, *edge)
        p.add("});", "}()")
    p.add("$w->Wait();", "$w.Wait()", w=w)


# ---- Pieces: small things whose outcome is plain -----------------------------


def piece_pingpong(p):
    a, b, t, n = p.chan(), p.chan(), p.tag(), p.rng.randrange(1, 50)
    p.add("""Go([=] { for (I v : $a) $b.Send(v + 1); });
  { I v = 0; for (int i = 0; i < $n; i++) { $a.Send(v); v = *$b.Recv(); } $a.Close(); out.Emit($t, v); }""",
          """go func() { for v := range $a { $b <- v + 1 } }()
  { v := int64(0); for i := 0; i < $n; i++ { $a <- v; v = <-$b }; close($a); out.Emit($t, v) }""",
          a=a, b=b, t=t, n=n)
    p.emit(t, n)


def piece_ring(p):
    t, n, m = p.tag(), p.rng.randrange(1, 12), p.rng.randrange(1, 6)
    f, l = p.name("f"), p.name("l")
    p.add("""C $f = make_chan<I>(), $l = $f;
  for (int i = 0; i < $n; i++) { C in = $l, to = make_chan<I>(); $l = to; Go([=] { for (I v : in) to.Send(v + 1); to.Close(); }); }
  Go([=] { for (I v = 0; v < $m; v++) $f.Send(v * 100); $f.Close(); });
  { I sum = 0; for (I v : $l) sum += v; out.Emit($t, sum); }""",
          """$f := make(chan int64); $l := $f
  for i := 0; i < $n; i++ { in, to := $l, make(chan int64); $l = to; go func() { for v := range in { to <- v + 1 }; close(to) }() }
  go func() { for v := int64(0); v < $m; v++ { $f <- v * 100 }; close($f) }()
  { sum := int64(0); for v := range $l { sum += v }; out.Emit($t, sum) }""", t=t, n=n, m=m, f=f, l=l)
    p.emit(t, sum(v * 100 + n for v in range(m)))


def piece_rounds(p):
    """A WaitGroup used again and again."""
    k, w, t, n, m = p.lock(), p.group(), p.tag(), p.rng.randrange(1, 8), p.rng.randrange(1, 8)
    p.add("""for (int r = 0; r < $m; r++) { for (int i = 0; i < $n; i++) GoIn($w, [=] { $k->mu.Lock(); $k->n++; $k->mu.Unlock(); });
    $w->Wait(); out.Emit($t, $k->n); }""",
          """for r := 0; r < $m; r++ { for i := 0; i < $n; i++ { $w.Add(1); go func() { defer $w.Done(); $k.mu.Lock(); $k.n++; $k.mu.Unlock() }() }
    $w.Wait(); out.Emit($t, $k.n) }""", k=k, w=w, t=t, n=n, m=m)
    for r in range(1, m + 1):
        p.emit(t, r * n)


def piece_broadcast(p):
    k, w, t, n = p.lock(), p.group(), p.tag(), p.rng.randrange(1, 10)
    p.add("""for (int i = 0; i < $n; i++) GoIn($w, [=] { $k->mu.Lock(); while (!$k->done) $k->cond.Wait(); $k->n++; $k->mu.Unlock(); });
  runtime::Gosched(); $k->mu.Lock(); $k->done = true; $k->cond.Broadcast(); $k->mu.Unlock(); $w->Wait(); out.Emit($t, $k->n);""",
          """for i := 0; i < $n; i++ { $w.Add(1); go func() { defer $w.Done(); $k.mu.Lock(); for !$k.done { $k.cond.Wait() }; $k.n++; $k.mu.Unlock() }() }
  runtime.Gosched(); $k.mu.Lock(); $k.done = true; $k.cond.Broadcast(); $k.mu.Unlock(); $w.Wait(); out.Emit($t, $k.n)""",
          k=k, w=w, t=t, n=n)
    p.emit(t, n)


def piece_tries(p):
    """Operations that do not wait, on a channel that no other goroutine has."""
    c, t, cap = p.name("c"), p.tag(), p.rng.randrange(4)
    n = p.rng.randrange(6)
    p.add("""auto $c = make_chan<I>($cap);
  for (I v = 0; v < $n; v++) out.Emit($t, select(Send($c, v), Default()));
  out.Emit($t, 10 + static_cast<I>($c.Len())); $c.Close();
  for (int i = 0; i < 6; i++) select(OnRecv($c, [&](I v, bool ok) { out.Emit($t, ok ? 100 + v : 200); }), Otherwise([&] { out.Emit($t, 300); }));
  C n$c; select(OnRecv(n$c, [&](I, bool) { out.Emit($t, 400); }), OnSend(n$c, 1, [&] { out.Emit($t, 500); }), Otherwise([&] { out.Emit($t, 600); }));""",
          """$c := make(chan int64, $cap)
  for v := int64(0); v < $n; v++ { select { case $c <- v: out.Emit($t, 0)
    default: out.Emit($t, 1) } }
  out.Emit($t, 10+int64(len($c))); close($c)
  for i := 0; i < 6; i++ { select { case v, ok := <-$c: if ok { out.Emit($t, 100+v) } else { out.Emit($t, 200) }
    default: out.Emit($t, 300) } }
  var n$c chan int64; select { case <-n$c: out.Emit($t, 400)
    case n$c <- 1: out.Emit($t, 500)
    default: out.Emit($t, 600) }""", c=c, t=t, cap=cap, n=n)
    kept = min(n, cap)
    for v in [0] * kept + [1] * (n - kept) + [10 + kept] + [100 + v for v in range(kept)] + [200] * (6 - kept) + [600]:
        p.emit(t, v)


def piece_contexts(p):
    """A parent's cancellation reaches its descendants, a child's does not reach others."""
    x, t, n, w = p.name("x"), p.tag(), p.rng.randrange(1, 6), p.group()
    p.add("""auto p$x = context::WithCancel(context::Background()); auto q$x = context::WithCancel(p$x.first);
  auto u$x = context::WithCancel(q$x.first);
  u$x.second(); u$x.first.Done().Recv(); out.Emit($t, q$x.first.Err().ok() ? 1 : 2);
  { auto ctx = q$x.first; for (int i = 0; i < $n; i++) GoIn($w, [=, &out] { ctx.Done().Recv(); out.Text($t, std::string(ctx.Err().message())); }); }
  p$x.second(); $w->Wait();""",
          """p$x, pc$x := context.WithCancel(context.Background()); q$x, qc$x := context.WithCancel(p$x)
  u$x, uc$x := context.WithCancel(q$x)
  uc$x(); <-u$x.Done(); if q$x.Err() == nil { out.Emit($t, 1) } else { out.Emit($t, 2) }
  for i := 0; i < $n; i++ { $w.Add(1); go func() { defer $w.Done(); <-q$x.Done(); out.Text($t, q$x.Err().Error()) }() }
  pc$x(); $w.Wait(); qc$x()""", x=x, t=t, n=n, w=w)
    p.emit(t, 1)
    for _ in range(n):
        p.emit(t, "context canceled")


def piece_deadline(p):
    if not p.timers:
        return piece_contexts(p)
    x, t = p.name("x"), p.tag()
    p.add("""auto p$x = context::WithTimeout(context::Background(), absl::Microseconds(200)); p$x.first.Done().Recv();
  out.Text($t, std::string(p$x.first.Err().message())); p$x.second();""",
          """p$x, c$x := context.WithTimeout(context.Background(), 200*time.Microsecond); <-p$x.Done()
  out.Text($t, p$x.Err().Error()); c$x()""", x=x, t=t)
    p.emit(t, "context deadline exceeded")


def piece_panics(p):
    t = p.tag()
    p.add("""out.Caught($t, [] { C c; c.Close(); });
  out.Caught($t, [] { auto c = make_chan<I>(1); c.Close(); c.Close(); });
  out.Caught($t, [] { auto c = make_chan<I>(1); c.Close(); c.Send(1); });
  out.Caught($t, [] { auto c = make_chan<I>(1); c.Close(); select(Send(c, 1), Default()); });
  out.Caught($t, [] { sync::WaitGroup w; w.Add(1); w.Done(); w.Done(); });
  out.Caught($t, [] { panic("own words"); });
  out.Caught($t, [] { sync::Once o; try { o.Do([] { panic("once"); }); } catch (const PanicError&) {} o.Do([] { panic("twice"); }); });""",
          """out.Caught($t, func() { var c chan int64; close(c) })
  out.Caught($t, func() { c := make(chan int64, 1); close(c); close(c) })
  out.Caught($t, func() { c := make(chan int64, 1); close(c); c <- 1 })
  out.Caught($t, func() { c := make(chan int64, 1); close(c); select { case c <- 1:
    default: } })
  out.Caught($t, func() { var w sync.WaitGroup; w.Add(1); w.Done(); w.Done() })
  out.Caught($t, func() { panic("own words") })
  out.Caught($t, func() { var o sync.Once; func() { defer func() { recover() }(); o.Do(func() { panic("once") }) }(); o.Do(func() { panic("twice") }) })""",
          t=t)
    for text in ["close of nil channel", "close of closed channel", "send on closed channel", "send on closed channel",
                 "sync: negative WaitGroup counter", "own words", "no panic"]:
        p.emit(t, text)


def piece_timers(p):
    if not p.timers:
        return piece_tries(p)
    t, c = p.tag(), p.name("c")
    p.add("""{ auto a = time::NewTimer(absl::Hours(1)); out.Emit($t, a.Stop()); out.Emit($t, a.Stop()); out.Emit($t, a.Reset(absl::Microseconds(50))); a.C.Recv(); }
  auto $c = make_chan<I>(1); { auto b = After(absl::Hours(1), [=] { $c.Send(5); }); out.Emit($t, b.Stop()); out.Emit($t, b.Reset(absl::Microseconds(50))); out.Emit($t, *$c.Recv()); }""",
          """{ a := time.NewTimer(time.Hour); out.Emit($t, truth(a.Stop())); out.Emit($t, truth(a.Stop())); out.Emit($t, truth(a.Reset(50 * time.Microsecond))); <-a.C }
  $c := make(chan int64, 1); { b := time.AfterFunc(time.Hour, func() { $c <- 5 }); out.Emit($t, truth(b.Stop())); out.Emit($t, truth(b.Reset(50 * time.Microsecond))); out.Emit($t, <-$c) }""",
          t=t, c=c)
    for v in [1, 0, 0, 1, 0, 5]:
        p.emit(t, v)


def piece_goexit(p):
    t, w, n = p.tag(), p.group(), p.rng.randrange(1, 5)
    p.add("""for (I v = 0; v < $n; v++) { $w->Add(1); Go([=, &out] { defer a([&] { $w->Done(); }); defer b([&] { out.Emit($t, v); });
    if (v % 2 == 0) runtime::Goexit();
    out.Emit($t, 100 + v); }); }
  $w->Wait();""",
          """for v := int64(0); v < $n; v++ { v := v; $w.Add(1); go func() { defer $w.Done(); defer func() { out.Emit($t, v) }()
    if v%2 == 0 { runtime.Goexit() }
    out.Emit($t, 100+v) }() }
  $w.Wait()""", t=t, w=w, n=n)
    for v in range(n):
        p.emit(t, v)
        if v % 2 != 0:
            p.emit(t, 100 + v)


def piece_trylock(p):
    k, t = p.lock(), p.tag()
    p.add("""out.Emit($t, $k->mu.TryLock()); out.Emit($t, $k->mu.TryLock()); $k->mu.Unlock();
  $k->rw.RLock(); out.Emit($t, $k->rw.TryRLock()); out.Emit($t, $k->rw.TryLock()); $k->rw.RUnlock(); $k->rw.RUnlock();
  out.Emit($t, $k->rw.TryLock()); out.Emit($t, $k->rw.TryRLock()); $k->rw.Unlock();""",
          """out.Emit($t, truth($k.mu.TryLock())); out.Emit($t, truth($k.mu.TryLock())); $k.mu.Unlock()
  $k.rw.RLock(); out.Emit($t, truth($k.rw.TryRLock())); out.Emit($t, truth($k.rw.TryLock())); $k.rw.RUnlock(); $k.rw.RUnlock()
  out.Emit($t, truth($k.rw.TryLock())); out.Emit($t, truth($k.rw.TryRLock())); $k.rw.Unlock()""", k=k, t=t)
    for v in [1, 0, 1, 0, 1, 0]:
        p.emit(t, v)


def piece_tree(p):
    """Goroutines that start goroutines."""
    f, t, n = p.name("f"), p.tag(), p.rng.randrange(1, 10)
    p.add("""std::function<I(I)> $f; $f = [&] (I n) -> I { if (n < 2) return n; auto c = make_chan<I>();
    for (I i = 1; i <= 2; i++) Go([=, &$f] { c.Send($f(n - i)); });
    I a = *c.Recv(); return a + *c.Recv(); };
  out.Emit($t, $f($n));""",
          """var $f func(n int64) int64; $f = func(n int64) int64 { if n < 2 { return n }; c := make(chan int64)
    for i := int64(1); i <= 2; i++ { i := i; go func() { c <- $f(n - i) }() }; a := <-c; return a + <-c }
  out.Emit($t, $f($n))""", f=f, t=t, n=n)
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    p.emit(t, a)


PIECES = [piece_pingpong, piece_ring, piece_rounds, piece_broadcast, piece_tries, piece_contexts, piece_deadline,
          piece_panics, piece_timers, piece_goexit, piece_trylock, piece_tree]

# ---- Endings: exit code and first line of standard error ---------------------

ASLEEP = 2, "fatal error: all goroutines are asleep - deadlock!"


def returns(p):
    return 0, ""


def exits(p):
    code = p.rng.choice([0, 1, 3, 7])
    where = p.rng.random() < 0.5
    if where:
        p.add("std::exit($n);", "os.Exit($n)", n=code)
    else:
        p.add("Go([] { std::exit($n); }); select();", "go func() { os.Exit($n) }(); select {}", n=code)
    return code, ""


def dies(p, cc, go, text):
    if p.rng.random() < 0.5:
        p.add(cc, go)
    else:
        p.add("Go([=] { " + cc + " }); select();", "go func() { " + go + " }(); select {}")
    return 2, text


def panics(p):
    return dies(p, 'panic("the end");', 'panic("the end")', "panic: the end")


def sends_closed(p):
    c = p.chan()
    return dies(p, f"{c}.Close(); {c}.Send(1);", f"close({c}); {c} <- 1", "panic: send on closed channel")


def closed_under_sender(p):
    c = p.name("c")
    p.add("auto $c = make_chan<I>(); Go([=] { $c.Send(1); }); runtime::Gosched(); $c.Close(); select();",
          "$c := make(chan int64); go func() { $c <- 1 }(); runtime.Gosched(); close($c); select {}", c=c)
    return 2, "panic: send on closed channel"


def closes_twice(p):
    c = p.chan()
    return dies(p, f"{c}.Close(); {c}.Close();", f"close({c}); close({c})", "panic: close of closed channel")


def closes_nil(p):
    return dies(p, "C c; c.Close();", "var c chan int64; close(c)", "panic: close of nil channel")


def counts_below_zero(p):
    w = p.group()
    return dies(p, f"{w}->Done();", f"{w}.Done()", "panic: sync: negative WaitGroup counter")


def unlocks(p):
    k = p.lock()
    return dies(p, f"{k}->mu.Unlock();", f"{k}.mu.Unlock()", "fatal error: sync: unlock of unlocked mutex")


def unlocks_rw(p):
    k = p.lock()
    return dies(p, f"{k}->rw.Unlock();", f"{k}.rw.Unlock()", "fatal error: sync: Unlock of unlocked RWMutex")


def unlocks_reader(p):
    k = p.lock()
    return dies(p, f"{k}->rw.RUnlock();", f"{k}.rw.RUnlock()", "fatal error: sync: RUnlock of unlocked RWMutex")


def asleep_receiving(p):
    c = p.chan()
    p.add("$c.Recv();", "<-$c", c=c)
    return ASLEEP


def asleep_nil(p):
    p.add("C().Recv();", "<-(chan int64)(nil)")
    return ASLEEP


def asleep_select(p):
    p.add("select();", "select {}")
    return ASLEEP


def asleep_others(p):
    """Goroutines that wait for one another, and main for them."""
    a, b, w = p.chan(), p.chan(), p.group()
    p.add("GoIn($w, [=] { $a.Recv(); $b.Send(1); }); GoIn($w, [=] { $b.Recv(); $a.Send(1); }); $w->Wait();",
          "$w.Add(2); go func() { <-$a; $b <- 1; $w.Done() }(); go func() { <-$b; $a <- 1; $w.Done() }(); $w.Wait()",
          a=a, b=b, w=w)
    return ASLEEP


def asleep_locked(p):
    k = p.lock()
    p.add("$k->mu.Lock(); $k->mu.Lock();", "$k.mu.Lock(); $k.mu.Lock()", k=k)
    return ASLEEP


def asleep_writer(p):
    k = p.lock()
    p.add("$k->rw.RLock(); $k->rw.Lock();", "$k.rw.RLock(); $k.rw.Lock()", k=k)
    return ASLEEP


def asleep_cond(p):
    k = p.lock()
    p.add("$k->mu.Lock(); $k->cond.Wait();", "$k.mu.Lock(); $k.cond.Wait()", k=k)
    return ASLEEP


def asleep_goexit(p):
    p.add("runtime::Goexit();", "runtime.Goexit()")
    return 2, "fatal error: no goroutines (main called runtime.Goexit) - deadlock!"


ENDINGS = [returns] * 14 + [exits] * 4 + [
    panics, sends_closed, closed_under_sender, closes_twice, closes_nil, counts_below_zero, unlocks, unlocks_rw,
    unlocks_reader, asleep_receiving, asleep_nil, asleep_select, asleep_others, asleep_locked, asleep_writer,
    asleep_cond, asleep_goexit]

# ---- Files -------------------------------------------------------------------

CC_HEAD = """// Generated by generate.py.
#include <functional>

#include "tests/diff/prelude.h"

"""
GO_HEAD = """// Generated by generate.py.
package main

import (
  "context"
  "os"
  "reflect"
  "runtime"
  "sync"
  "time"
)

var _ = context.Background
var _ = os.Exit
var _ = reflect.Select
var _ = runtime.Gosched
var _ sync.Mutex
var _ = time.Now

"""


def generate(first, last, folder):
    for language in ["cc", "go"]:
        (folder / language).mkdir(parents=True, exist_ok=True)
    expected = {}
    seeds = list(range(first, last + 1))
    for start in range(0, len(seeds), PROGRAMS_A_FILE):
        cc, go = [CC_HEAD], [GO_HEAD]
        for seed in seeds[start:start + PROGRAMS_A_FILE]:
            p = Program(seed)
            expected[seed] = p.write()
            cc.append(f"void Program{seed}([[maybe_unused]] Out& out) {{\n  " + "\n  ".join(p.cc) + "\n}\n\n")
            go.append(f"func program{seed}(out *Out) {{\n  " + "\n  ".join(p.go) + "\n}\n\n")
        part = start // PROGRAMS_A_FILE
        (folder / "cc" / f"programs_{part}.cc").write_text("".join(cc))
        (folder / "go" / f"programs_{part}.go").write_text("".join(go))
    declare = "".join(f"void Program{s}(Out& out);\n" for s in seeds)
    rows = "".join(f"    {{{s}, Program{s}}},\n" for s in seeds)
    (folder / "cc" / "table.cc").write_text(
        f'// Generated by generate.py.\n#include "tests/diff/prelude.h"\n\n{declare}\nconst Program kPrograms[] = {{\n'
        f"{rows}}};\nconst int kProgramCount = {len(seeds)};\n")
    rows = "".join(f"  {s}: program{s},\n" for s in seeds)
    (folder / "go" / "table.go").write_text(
        "// Generated by generate.py.\npackage main\n\nvar programs map[int]func(*Out)\n\n"
        f"func init() {{\n  programs = map[int]func(*Out){{\n{rows}  }}\n}}\n")
    (folder / "expected.json").write_text(json.dumps(expected, indent=0) + "\n")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    generate(int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3]))


if __name__ == "__main__":
    main()
