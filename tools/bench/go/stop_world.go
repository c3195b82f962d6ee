package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// worldStops changes GOMAXPROCS an even number of times, so it ends with the value that it began with.
func worldStops(pairs int) []time.Duration {
	procs := runtime.GOMAXPROCS(0)
	took := make([]time.Duration, 0, 2*pairs)
	for i := 0; i < 2*pairs; i++ {
		sleepNanos(200000)
		n := procs
		if i%2 == 0 {
			n++
		}
		start := time.Now()
		runtime.GOMAXPROCS(n)
		took = append(took, time.Since(start))
	}
	return took
}

// stopWorld is STW. The plain thread has no twin, because in Go the thread that stops the world has a P.
func stopWorld(o options) {
	const workload = "STW/goroutine"
	if !o.selected(workload) {
		return
	}
	hogs := runtime.GOMAXPROCS(0) + 1
	var stop, begun int32
	var wg sync.WaitGroup
	wg.Add(hogs)
	for i := 0; i < hogs; i++ {
		go func() {
			atomic.AddInt32(&begun, 1)
			for atomic.LoadInt32(&stop) == 0 {
			}
			wg.Done()
		}()
	}
	for int(atomic.LoadInt32(&begun)) < hogs {
		runtime.Gosched()
	}
	worldStops(o.scaled(50))
	for r := 0; r < o.reps; r++ {
		reportQuantiles(workload, worldStops(o.scaled(500)))
	}
	atomic.StoreInt32(&stop, 1)
	wg.Wait()
}
