package main

import (
	"fmt"
	"runtime"
	"sync"
)

// yield is W2.
func yield(o options) {
	yields := o.scaled(5000000)
	for _, k := range []int{2, 1000} {
		each := yields / k
		if each == 0 {
			each = 1
		}
		measureNanosPer(o, fmt.Sprintf("W2/%d", k), "ns/switch", each*k, func() {
			var wg sync.WaitGroup
			wg.Add(k)
			for g := 0; g < k; g++ {
				go func() {
					for i := 0; i < each; i++ {
						runtime.Gosched()
					}
					wg.Done()
				}()
			}
			wg.Wait()
		})
	}
}
