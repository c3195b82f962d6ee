package main

import (
	"sync"
	"time"
)

// sleepers is W11: 100,000 goroutines sleep ten times each, for a random time of 1 to 100 ms.
func sleepers(o options) {
	const workload = "W11"
	if !o.selected(workload) {
		return
	}
	goroutines := o.scaled(100000)
	sleepAll(goroutines)
	for r := 0; r < o.reps; r++ {
		start, cpu := time.Now(), cpuNanos()
		late := sleepAll(goroutines)
		report(workload, "cpu-ms", float64(cpuNanos()-cpu)/1e6)
		report(workload, "wall-ms", time.Since(start).Seconds()*1e3)
		reportQuantiles(workload, late)
	}
}

func sleepAll(goroutines int) []time.Duration {
	const sleeps, minNs, maxNs = 10, 1000000, 100000000
	late := make([]time.Duration, goroutines*sleeps)
	var wg sync.WaitGroup
	wg.Add(goroutines)
	for i := 0; i < goroutines; i++ {
		go func(seed uint64, out []time.Duration) {
			x := seed*0x9e3779b97f4a7c15 + 1
			for k := range out {
				x ^= x << 13
				x ^= x >> 7
				x ^= x << 17
				d := time.Duration(minNs + x%(maxNs-minNs+1))
				due := time.Now().Add(d)
				time.Sleep(d)
				out[k] = time.Since(due)
			}
			wg.Done()
		}(uint64(i), late[i*sleeps:(i+1)*sleeps])
	}
	wg.Wait()
	return late
}
