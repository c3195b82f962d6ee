package main

// selectFour is W6.
func selectFour(o options) {
	const producers = 4
	each := o.scaled(1000000 / producers)
	measureNanosPer(o, "W6", "ns/item", each*producers, func() {
		var c [producers]chan int
		for p := range c {
			ci := make(chan int)
			c[p] = ci
			go func() {
				for i := 0; i < each; i++ {
					ci <- i
				}
			}()
		}
		sum := 0
		for i := 0; i < each*producers; i++ {
			select {
			case v := <-c[0]:
				sum += v
			case v := <-c[1]:
				sum += v
			case v := <-c[2]:
				sum += v
			case v := <-c[3]:
				sum += v
			}
		}
		sink = sum
	})
}
