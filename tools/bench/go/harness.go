package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// options are those of the C++ programs; see ../harness.h.
type options struct {
	reps   int
	only   string
	divide int
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

// measureNanosPer runs f once to warm up and then reps times, and prints nanoseconds per operation of each.
func measureNanosPer(o options, workload, metric string, ops int, f func()) {
	if !o.selected(workload) {
		return
	}
	f()
	for r := 0; r < o.reps; r++ {
		start := time.Now()
		f()
		report(workload, metric, float64(time.Since(start).Nanoseconds())/float64(ops))
	}
}

// measureMillis is the same for whole runs.
func measureMillis(o options, workload string, f func()) {
	measureNanosPer(o, workload, "ms", 1000000, f)
}
