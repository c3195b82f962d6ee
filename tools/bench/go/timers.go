package main

import (
	"sync"
	"time"
)

const far = time.Hour

func startAndStop(n int) {
	const atATime = 1000
	var live [atATime]*time.Timer
	for i := 0; i < n; i++ {
		slot := &live[i%atATime]
		if i >= atATime {
			(*slot).Stop()
		}
		*slot = time.AfterFunc(far, func() {})
	}
	for _, t := range live {
		if t != nil {
			t.Stop()
		}
	}
}

func timersStop(each int) float64 {
	const goroutines = 2
	start := time.Now()
	var wg sync.WaitGroup
	wg.Add(goroutines)
	for i := 0; i < goroutines; i++ {
		go func() {
			startAndStop(each)
			wg.Done()
		}()
	}
	wg.Wait()
	return float64(time.Since(start).Nanoseconds()) / float64(goroutines*each)
}

func timersFunc(n int) (late []time.Duration) {
	ran := make(chan time.Time, 1)
	for i := 0; i < n; i++ {
		due := time.Now().Add(time.Millisecond)
		time.AfterFunc(time.Millisecond, func() { ran <- time.Now() })
		late = append(late, (<-ran).Sub(due))
	}
	return late
}

func timersSleep(n int) (late []time.Duration) {
	const d = 50 * time.Microsecond
	for i := 0; i < n; i++ {
		due := time.Now().Add(d)
		time.Sleep(d)
		late = append(late, time.Since(due))
	}
	return late
}

func timersFar(n, ms int) float64 {
	timers := make([]*time.Timer, n)
	for i := range timers {
		timers[i] = time.AfterFunc(far, func() {})
	}
	cpu := cpuNanos()
	time.Sleep(time.Duration(ms) * time.Millisecond)
	used := cpuNanos() - cpu
	for _, t := range timers {
		t.Stop()
	}
	return float64(used) / 1e6
}

// timers is TIMER: the cost of timers that never fire, and how late timers are when the process has nothing else to do.
func timers(o options) {
	for r := 0; o.selected("TIMER/stop") && r <= o.reps; r++ {
		if ns := timersStop(o.scaled(500000)); r > 0 {
			report("TIMER/stop", "ns/timer", ns)
		}
	}
	for r := 0; o.selected("TIMER/func") && r < o.reps; r++ {
		reportQuantiles("TIMER/func", timersFunc(o.scaled(500)))
	}
	for r := 0; o.selected("TIMER/sleep") && r < o.reps; r++ {
		reportQuantiles("TIMER/sleep", timersSleep(o.scaled(5000)))
	}
	for r := 0; o.selected("TIMER/far") && r < o.reps; r++ {
		report("TIMER/far", "cpu-ms", timersFar(o.scaled(1000000), o.scaled(5000)))
	}
}
