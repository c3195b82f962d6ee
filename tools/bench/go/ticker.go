package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// ticker is W14: for three seconds, a goroutine sleeps 1 ms again and again while four others spin.
func ticker(o options) {
	const workload, hogs, period = "W14", 4, time.Millisecond
	if !o.selected(workload) {
		return
	}
	var stop int32
	var wg sync.WaitGroup
	wg.Add(hogs)
	for i := 0; i < hogs; i++ {
		go func() {
			for atomic.LoadInt32(&stop) == 0 {
			}
			wg.Done()
		}()
	}
	for r := 0; r < o.reps; r++ {
		var late []time.Duration
		end := time.Now().Add(time.Duration(o.scaled(3000)) * time.Millisecond)
		for now := time.Now(); now.Before(end); {
			due := now.Add(period)
			time.Sleep(period)
			now = time.Now()
			late = append(late, now.Sub(due))
		}
		report(workload, "ticks", float64(len(late)))
		reportQuantiles(workload, late)
	}
	atomic.StoreInt32(&stop, 1)
	wg.Wait()
}
