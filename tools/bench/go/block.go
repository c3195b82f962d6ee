package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// load computes on a goroutine, from startLoad to stop.
type load struct {
	stopped int32
	rate    chan float64
}

func startLoad() *load {
	l := &load{rate: make(chan float64)}
	go func() {
		start := time.Now()
		rounds, x := 0, uint64(1)
		for ; atomic.LoadInt32(&l.stopped) == 0; rounds++ {
			x = compute(x, 1000)
		}
		elapsed := time.Since(start)
		sink = int(x)
		l.rate <- float64(rounds) / float64(elapsed.Nanoseconds())
	}()
	return l
}

func (l *load) stop() float64 {
	atomic.StoreInt32(&l.stopped, 1)
	return <-l.rate
}

// block is W15b. The raw sleeps have no twin: a RawSyscall that sleeps keeps its P to the end, which no Go program would do.
func block(o options) {
	const workload, sleepers = "W15b/declared", 64
	if !o.selected(workload) {
		return
	}
	sleeps := o.scaled(100)
	for r := -1; r < o.reps; r++ {
		l := startLoad()
		sleepNanos(int64(o.scaled(100)) * 1e6)
		alone := l.stop()
		l = startLoad()
		start := time.Now()
		var wg sync.WaitGroup
		wg.Add(sleepers)
		for i := 0; i < sleepers; i++ {
			go func() {
				for k := 0; k < sleeps; k++ {
					sleepNanos(1e6)
				}
				wg.Done()
			}()
		}
		wg.Wait()
		wall := time.Since(start)
		beside := l.stop()
		if r < 0 {
			continue // the first round makes the threads
		}
		report(workload, "wall-ms", float64(wall.Nanoseconds())/1e6)
		report(workload, "compute-%", 100*beside/alone)
	}
}
