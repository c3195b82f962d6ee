package main

import "sync"

func lockUnlock(goroutines, each int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	counter := 0
	wg.Add(goroutines)
	for g := 0; g < goroutines; g++ {
		go func() {
			for i := 0; i < each; i++ {
				mu.Lock()
				counter++
				mu.Unlock()
			}
			wg.Done()
		}()
	}
	wg.Wait()
	if counter != goroutines*each {
		panic("mutex: lost updates")
	}
}

// mutex is W7.
func mutex(o options) {
	alone := o.scaled(20000000)
	measureNanosPer(o, "W7/1", "ns/op", alone, func() { lockUnlock(1, alone) })
	each := o.scaled(4000000 / 8)
	measureNanosPer(o, "W7/8", "ns/op", each*8, func() { lockUnlock(8, each) })
}
