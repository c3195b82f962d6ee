package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"sync"
	"time"
)

// startOne is the program that W20 starts.
func startOne() {
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		fmt.Println("one")
		wg.Done()
	}()
	wg.Wait()
}

// startNanos starts a program that prints to /dev/null, and returns the time until the program has ended.
func startNanos(program string, arguments ...string) int64 {
	begin := time.Now()
	if err := exec.Command(program, arguments...).Run(); err != nil {
		fmt.Fprintln(os.Stderr, program, err)
		os.Exit(1)
	}
	return time.Since(begin).Nanoseconds()
}

func medianMs(nanos []int64) float64 {
	sort.Slice(nanos, func(i, j int) bool { return nanos[i] < nanos[j] })
	return float64(nanos[len(nanos)/2]) / 1e6
}

// start is W20: the time from the start of a program to its end. BENCH_LINE is a C++ program that prints a line, for comparison.
func start(o options) {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	line, _ := filepath.Abs(os.Getenv("BENCH_LINE"))
	for r := 0; r < o.reps; r++ {
		var one, plain []int64
		for i := 0; i < o.scaled(200); i++ {
			plain = append(plain, startNanos(line))
			one = append(one, startNanos(self, "start", "--one", "1"))
		}
		ms := medianMs(one)
		report("W20", "ms", ms)
		report("W20", "over-ms", ms-medianMs(plain))
	}
}
