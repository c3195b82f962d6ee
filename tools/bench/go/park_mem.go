package main

import (
	"sync"
	"time"
)

// parkMem is W10, with one measurement per process. RECLAIM has no twin, because Go's stacks shrink by copying.
func parkMem(o options) {
	if !o.selected("W10") {
		return
	}
	n := o.scaled(1000000)
	gate := make(chan struct{})
	var waiting, finished sync.WaitGroup
	waiting.Add(n)
	finished.Add(n)

	rssBefore := rssBytes()
	start := time.Now()
	for i := 0; i < n; i++ {
		go func() {
			waiting.Done()
			<-gate
			finished.Done()
		}()
	}
	waiting.Wait()
	parked := time.Since(start)
	rssParked := rssBytes()
	release := time.Now()
	close(gate)
	finished.Wait()
	released := time.Since(release)

	report("W10", "B/task", float64(rssParked-rssBefore)/float64(n))
	report("W10", "create-ms", float64(parked.Nanoseconds())/1e6)
	report("W10", "release-ms", float64(released.Nanoseconds())/1e6)
}
