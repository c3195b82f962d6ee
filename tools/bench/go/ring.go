package main

import (
	"sync"
	"time"
)

const nodes = 1000

// ring is W9.
func ring(o options) {
	hops := o.scaled(2000000)
	runRing(hops)
	for r := 0; r < o.reps; r++ {
		report("W9", "ns/hop", float64(runRing(hops).Nanoseconds())/float64(hops))
	}
}

func runRing(hops int) time.Duration {
	link := make([]chan int, nodes)
	for i := range link {
		link[i] = make(chan int)
	}
	finished := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(nodes)
	for i := range link {
		go func(in, out chan int) {
			for token := range in {
				if token == hops {
					finished <- struct{}{}
				} else {
					out <- token + 1
				}
			}
			wg.Done()
		}(link[i], link[(i+1)%nodes])
	}
	start := time.Now()
	link[0] <- 1
	<-finished
	elapsed := time.Since(start)
	for _, c := range link {
		close(c)
	}
	wg.Wait()
	return elapsed
}
