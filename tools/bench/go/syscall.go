package main

import (
	"syscall"
	"time"
)

func nanosPer(calls int, f func()) float64 {
	start := time.Now()
	for i := 0; i < calls; i++ {
		f()
	}
	return float64(time.Since(start).Nanoseconds()) / float64(calls)
}

// systemCall is W15a. syscall.Syscall is Go's declared call; RawSyscall declares nothing.
func systemCall(o options) {
	calls := o.scaled(3000000)
	for r := -1; r < o.reps; r++ {
		raw := nanosPer(calls, func() { syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0) })
		declared := nanosPer(calls, func() { syscall.Syscall(syscall.SYS_GETPPID, 0, 0, 0) })
		if r < 0 {
			continue // warm-up
		}
		report("W15a", "ns/op", declared)
		report("W15a", "raw-ns", raw)
		report("W15a", "over-ns", declared-raw)
	}
}
