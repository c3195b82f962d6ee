// The Go twin of the benchmarks: every workload has the shape and the counts of ../<problem>/gump.cc.
//
//	gumpbench <problem> [--reps N] [--only A,B] [--divide N] [--beside stack|procs]
package main

import (
	"fmt"
	"os"
	"runtime/trace"
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
	"start":      start,
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
	if len(os.Args) == 4 && os.Args[1] == "start" && os.Args[2] == "--one" {
		startOne()
		return
	}
	// As GUMP_TRACE does: all of the run is traced.
	if name := os.Getenv("BENCH_GOTRACE"); name != "" {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
		if err == nil {
			err = trace.Start(f)
		}
		if err != nil {
			panic(err)
		}
		defer trace.Stop()
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
