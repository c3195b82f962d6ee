package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"time"
)

// options are the same as those of the C++ programs; see ../harness.h.
type options struct {
	reps   int
	only   string
	divide int
	beside string
}

// beside stops the world every 10 ms until the function that it returns is called; see Beside in ../harness.h.
func beside(o options) func() {
	if o.beside == "" {
		return func() {}
	}
	procs := runtime.GOMAXPROCS(0)
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		buf := make([]byte, 1<<20)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			if o.beside == "stack" {
				runtime.Stack(buf, true)
			} else {
				runtime.GOMAXPROCS(procs + 1)
				runtime.GOMAXPROCS(procs)
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

func (o options) selected(workload string) bool {
	return o.only == "" || strings.Contains(","+o.only+",", ","+workload+",")
}

func (o options) scaled(count int) int {
	if count /= o.divide; count > 1 {
		return count
	}
	return 1
}

// sink keeps results alive.
var sink int

func report(workload, metric string, value float64) {
	fmt.Printf("%s procs=%d %s %.6g\n", workload, runtime.GOMAXPROCS(0), metric, value)
}

// cpuNanos is the user and system time of the whole process so far.
func cpuNanos() int64 {
	var ru syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return ru.Utime.Nano() + ru.Stime.Nano()
}

// rssBytes is the resident set of the process.
func rssBytes() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var total, resident int64
	fmt.Sscan(string(text), &total, &resident)
	return resident * int64(os.Getpagesize())
}

// reportQuantiles prints the median, the 99th percentile and the maximum.
func reportQuantiles(workload string, times []time.Duration) {
	if len(times) == 0 {
		return
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	micros := func(i int) float64 { return float64(times[i].Nanoseconds()) / 1e3 }
	report(workload, "p50-us", micros(len(times)/2))
	report(workload, "p99-us", micros(len(times)*99/100))
	report(workload, "max-us", micros(len(times)-1))
}

// sleepNanos sleeps in the kernel, not in the scheduler. To Go it is a declared call.
func sleepNanos(ns int64) {
	ts := syscall.NsecToTimespec(ns)
	for syscall.Nanosleep(&ts, &ts) != nil {
	}
}

// compute makes n steps of arithmetic, each of which needs the one before.
func compute(x uint64, n int) uint64 {
	for i := 0; i < n; i++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// measureNanosPer runs f once to warm up and then reps times. It prints the nanoseconds per operation of each timed run.
func measureNanosPer(o options, workload, metric string, ops int, f func()) {
	if !o.selected(workload) {
		return
	}
	defer beside(o)()
	f()
	for r := 0; r < o.reps; r++ {
		start := time.Now()
		f()
		report(workload, metric, float64(time.Since(start).Nanoseconds())/float64(ops))
	}
}

// measureMillis does the same and prints milliseconds per run.
func measureMillis(o options, workload string, f func()) {
	measureNanosPer(o, workload, "ms", 1000000, f)
}
