package main

import (
	"math/rand"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// file is W18. BENCH_DATA is the file.
func file(o options) {
	const readers, block, blocks = 64, 4096, (1 << 30) / 4096
	f, err := os.OpenFile(os.Getenv("BENCH_DATA"), os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	for r := 0; r < o.reps && o.selected("W18"); r++ {
		cpu, start := cpuNanos(), time.Now()
		end := start.Add(time.Duration(o.scaled(5000)) * time.Millisecond)
		var reads int64
		var wg sync.WaitGroup
		for i := 0; i < readers; i++ {
			random := rand.New(rand.NewSource(int64(i + 1)))
			wg.Add(1)
			go func() {
				defer wg.Done()
				room := make([]byte, 2*block)
				skip := -int(uintptr(unsafe.Pointer(&room[0]))) & (block - 1)
				n := int64(0)
				for time.Now().Before(end) {
					if _, err := f.ReadAt(room[skip:skip+block], random.Int63n(blocks)*block); err != nil {
						panic(err)
					}
					n++
				}
				atomic.AddInt64(&reads, n)
			}()
		}
		wg.Wait()
		n := float64(reads)
		report("W18", "ns/read", float64(time.Since(start).Nanoseconds())/n)
		report("W18", "cpu-us", float64(cpuNanos()-cpu)/1e3/n)
	}
}
