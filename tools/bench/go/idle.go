package main

import (
	"sync"
	"time"
)

// idle is W17.
func idle(o options) {
	const parked = 1000
	gate := make(chan struct{})
	var waiting, finished sync.WaitGroup
	waiting.Add(parked)
	finished.Add(parked)
	for i := 0; i < parked; i++ {
		go func() {
			waiting.Done()
			<-gate
			finished.Done()
		}()
	}
	waiting.Wait()
	time.Sleep(100 * time.Millisecond)
	for r := 0; r < o.reps; r++ {
		before := cpuNanos()
		time.Sleep(time.Duration(o.scaled(5000)) * time.Millisecond)
		report("W17", "cpu-ms", float64(cpuNanos()-before)/1e6)
	}
	close(gate)
	finished.Wait()
}
