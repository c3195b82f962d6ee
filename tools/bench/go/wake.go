package main

import (
	"runtime"
	"sync"
	"time"
)

const wakePause = 1e6 // ns

func wakeByGo(posts int) []time.Duration {
	late := make([]time.Duration, posts)
	var ran sync.WaitGroup
	ran.Add(posts)
	go func() {
		runtime.LockOSThread()
		for i := range late {
			slot := &late[i]
			sleepNanos(wakePause)
			at := time.Now()
			go func() {
				*slot = time.Since(at)
				ran.Done()
			}()
		}
	}()
	ran.Wait()
	return late
}

func wakeByChan(posts int) []time.Duration {
	late := make([]time.Duration, 0, posts)
	c := make(chan time.Time)
	go func() {
		runtime.LockOSThread()
		for i := 0; i < posts; i++ {
			sleepNanos(wakePause)
			c <- time.Now()
		}
		close(c)
	}()
	for at := range c {
		late = append(late, time.Since(at))
	}
	return late
}

// wake is W16. Go has no foreign threads. The nearest is a goroutine that keeps its thread and sleeps in the kernel.
func wake(o options) {
	measure := func(workload string, post func(int) []time.Duration) {
		if !o.selected(workload) {
			return
		}
		post(o.scaled(100))
		for r := 0; r < o.reps; r++ {
			reportQuantiles(workload, post(o.scaled(1000)))
		}
	}
	measure("W16/go", wakeByGo)
	measure("W16/chan", wakeByChan)
}
