package main

// pingPong is W3.
func pingPong(o options) {
	n := o.scaled(1000000)
	measureNanosPer(o, "W3", "ns/roundtrip", n, func() {
		ping := make(chan int)
		pong := make(chan int)
		go func() {
			for v := range ping {
				pong <- v
			}
			close(pong)
		}()
		for i := 0; i < n; i++ {
			ping <- i
			<-pong
		}
		close(ping)
		<-pong
	})
}
