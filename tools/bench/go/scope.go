package main

import "sync"

// scope is SCOPE. Go has no scopes, so the twin has the WaitGroups alone.
func scope(o options) {
	measureScope(o, "SCOPE/one", 1)
	measureScope(o, "SCOPE/batch", 1000)
}

func measureScope(o options, workload string, batch int) {
	rounds := o.scaled(1000000 / batch)
	measureNanosPer(o, workload, "group-ns", rounds*batch, func() {
		for r := 0; r < rounds; r++ {
			var wg sync.WaitGroup
			for i := 0; i < batch; i++ {
				wg.Add(1)
				go func() { wg.Done() }()
			}
			wg.Wait()
		}
	})
}
