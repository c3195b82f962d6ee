package main

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// readMetrics is METRICS: 100,000 goroutines wait, and a goroutine reads all metrics, again and again. (Go's library has
// no text for Prometheus.)
func readMetrics(o options) {
	const workload = "METRICS/read"
	if !o.selected(workload) {
		return
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := o.scaled(100_000); i > 0; i-- {
		wg.Add(1)
		go func() {
			<-stop
			wg.Done()
		}()
	}
	for i := 0; i < 10; i++ {
		runtime.Gosched() // they wait
	}
	var samples []metrics.Sample
	for _, d := range metrics.All() {
		samples = append(samples, metrics.Sample{Name: d.Name})
	}
	for r := 0; r < o.reps; r++ {
		var took []time.Duration
		for i := o.scaled(1000); i > 0; i-- {
			start := time.Now()
			metrics.Read(samples)
			took = append(took, time.Since(start))
		}
		reportQuantiles(workload, took)
	}
	close(stop)
	wg.Wait()
}
