package main

import "sync"

func fib(n int) int {
	if n < 2 {
		return n
	}
	x := 0
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		x = fib(n - 1)
		wg.Done()
	}()
	y := fib(n - 2)
	wg.Wait()
	return x + y
}

// spawns is the number of goroutines that fib(n) makes.
func spawns(n int) int {
	if n < 2 {
		return 0
	}
	return 1 + spawns(n-1) + spawns(n-2)
}

// fibonacci is W12.
func fibonacci(o options) {
	n := 30
	for n > 10 && spawns(n) > o.scaled(1346268) {
		n--
	}
	measureNanosPer(o, "W12", "ns/spawn", spawns(n), func() { sink = fib(n) })
}
