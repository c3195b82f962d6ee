package main

import "sync"

const fanOut = 10

func nodeChan(result chan int, first, leaves int) {
	if leaves == 1 {
		result <- first
		return
	}
	children := make(chan int)
	for i := 0; i < fanOut; i++ {
		go nodeChan(children, first+i*(leaves/fanOut), leaves/fanOut)
	}
	sum := 0
	for i := 0; i < fanOut; i++ {
		sum += <-children
	}
	result <- sum
}

func nodeJoin(parent *sync.WaitGroup, result *int, first, leaves int) {
	if leaves == 1 {
		*result = first
		parent.Done()
		return
	}
	var wg sync.WaitGroup
	var sums [fanOut]int
	wg.Add(fanOut)
	for i := 0; i < fanOut; i++ {
		go nodeJoin(&wg, &sums[i], first+i*(leaves/fanOut), leaves/fanOut)
	}
	wg.Wait()
	sum := 0
	for _, s := range sums {
		sum += s
	}
	*result = sum
	parent.Done()
}

// skynet is W8.
func skynet(o options) {
	leaves := 1000000
	for leaves > fanOut && leaves > o.scaled(1000000) {
		leaves /= fanOut
	}
	check := func(sum int) {
		if sum != leaves*(leaves-1)/2 {
			panic("skynet: wrong sum")
		}
	}
	measureMillis(o, "W8/chan", func() {
		result := make(chan int)
		go nodeChan(result, 0, leaves)
		check(<-result)
	})
	measureMillis(o, "W8/join", func() {
		var wg sync.WaitGroup
		sum := 0
		wg.Add(1)
		go nodeJoin(&wg, &sum, 0, leaves)
		wg.Wait()
		check(sum)
	})
}
