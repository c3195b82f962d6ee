package main

import "sync"

// chanQueue is W4, W5 and W5b.
func chanQueue(o options) {
	for _, shape := range []struct {
		workload                              string
		capacity, producers, consumers, items int
	}{
		{"W4", 128, 1, 1, 5000000},
		{"W5", 128, 4, 4, 4000000},
		{"W5b", 0, 4, 4, 2000000},
	} {
		shape := shape
		each := o.scaled(shape.items / shape.producers)
		measureNanosPer(o, shape.workload, "ns/item", each*shape.producers, func() {
			c := make(chan int, shape.capacity)
			var producing, consuming sync.WaitGroup
			producing.Add(shape.producers)
			consuming.Add(shape.consumers)
			for p := 0; p < shape.producers; p++ {
				go func() {
					for i := 0; i < each; i++ {
						c <- i
					}
					producing.Done()
				}()
			}
			for k := 0; k < shape.consumers; k++ {
				go func() {
					sum := 0
					for v := range c {
						sum += v
					}
					if sum < 0 {
						panic("chan_queue: negative sum")
					}
					consuming.Done()
				}()
			}
			producing.Wait()
			close(c)
			consuming.Wait()
		})
	}
}
