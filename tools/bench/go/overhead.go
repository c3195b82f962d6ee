package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// overheadWork is the work that each child process of overhead does.
func overheadWork(goroutinesText, stepsText string) {
	goroutines, _ := strconv.Atoi(goroutinesText)
	steps, _ := strconv.Atoi(stepsText)
	var sum uint64
	start, cpu := time.Now(), cpuNanos()
	var wg sync.WaitGroup
	wg.Add(goroutines)
	for i := 0; i < goroutines; i++ {
		i := i
		go func() {
			atomic.AddUint64(&sum, compute(uint64(i), steps/goroutines))
			wg.Done()
		}()
	}
	wg.Wait()
	fmt.Println(float64(time.Since(start).Nanoseconds())/1e6, float64(cpuNanos()-cpu)/1e6, sum)
}

type cost struct {
	wall, cpu float64
	checksum  uint64
}

func overheadChild(goroutines, steps int, debug string) (c cost) {
	child := exec.Command(os.Args[0], "overhead", "--work", strconv.Itoa(goroutines), strconv.Itoa(steps))
	child.Env = append(os.Environ(), "GODEBUG="+debug)
	out, err := child.Output()
	if err != nil {
		panic(err)
	}
	if _, err := fmt.Sscan(string(out), &c.wall, &c.cpu, &c.checksum); err != nil {
		panic(err)
	}
	return c
}

// overhead is OVERHEAD.
func overhead(o options) {
	measure := func(workload string, goroutines int) {
		if !o.selected(workload) {
			return
		}
		steps := o.scaled(800000000)
		overheadChild(goroutines, steps, "")
		for r := 0; r < o.reps; r++ {
			off := overheadChild(goroutines, steps, "asyncpreemptoff=1")
			on := overheadChild(goroutines, steps, "")
			if off.checksum != on.checksum {
				panic("overhead: checksums differ")
			}
			report(workload, "off-ms", off.wall)
			report(workload, "lost-%", 100*(on.wall/off.wall-1))
			report(workload, "cpu-lost-%", 100*(on.cpu/off.cpu-1))
		}
	}
	measure("OVERHEAD/2", 2)
	measure("OVERHEAD/8", 8)
}
