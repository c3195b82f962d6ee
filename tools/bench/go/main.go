// The Go twin of the benchmarks: every workload has the shape and the counts of ../<problem>/gump.cc.
//
//	gumpbench <problem> [--reps N] [--only A,B] [--divide N] [--beside stack|procs]
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
)

var problems = map[string]func(options){
	"block":      block,
	"chan_queue": chanQueue,
	"conns":      conns,
	"echo":       echo,
	"fib":        fibonacci,
	"file":       file,
	"http":       httpServers,
	"idle":       idle,
	"metrics":    readMetrics,
	"mutex":      mutex,
	"overhead":   overhead,
	"park_mem":   parkMem,
	"pingpong":   pingPong,
	"ring":       ring,
	"scope":      scope,
	"select":     selectFour,
	"skynet":     skynet,
	"spawn_join": spawnJoin,
	"stop_world": stopWorld,
	"syscall":    systemCall,
	"sleepers":   sleepers,
	"ticker":     ticker,
	"timers":     timers,
	"wake":       wake,
	"yield":      yield,
}

func main() {
	if len(os.Args) == 5 && os.Args[1] == "overhead" && os.Args[2] == "--work" {
		overheadWork(os.Args[3], os.Args[4])
		return
	}
	o := options{reps: 5, divide: 1}
	ok := len(os.Args) >= 2 && len(os.Args)%2 == 0
	positive := func(text string) int {
		n, err := strconv.Atoi(text)
		ok = ok && err == nil && n > 0
		return n
	}
	for i := 2; ok && i+1 < len(os.Args); i += 2 {
		switch value := os.Args[i+1]; os.Args[i] {
		case "--reps":
			o.reps = positive(value)
		case "--only":
			o.only = value
		case "--divide":
			o.divide = positive(value)
		case "--beside":
			o.beside = value
		default:
			ok = false
		}
	}
	var run func(options)
	if ok {
		run, ok = problems[os.Args[1]]
	}
	if !ok {
		names := make([]string, 0, len(problems))
		for name := range problems {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintln(os.Stderr, "usage: gumpbench PROBLEM [--reps N] [--only A,B] [--divide N] [--beside stack|procs]; problems:", names)
		os.Exit(2)
	}
	run(o)
}
