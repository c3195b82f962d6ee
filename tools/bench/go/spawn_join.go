package main

import "sync"

const batch = 1000

// spawnJoin is W1.
func spawnJoin(o options) {
	batches := o.scaled(1000000 / batch)
	measureNanosPer(o, "W1", "ns/task", batches*batch, func() {
		var wg sync.WaitGroup
		for b := 0; b < batches; b++ {
			wg.Add(batch)
			for i := 0; i < batch; i++ {
				go func() { wg.Done() }()
			}
			wg.Wait()
		}
	})
}
