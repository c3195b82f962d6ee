// The Go twin of the benchmarks: every workload has the shape and the counts of ../<problem>/gump.cc.
//
//	gumpbench <problem> [--reps N] [--only A,B] [--divide N]
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
)

var problems = map[string]func(options){
	"chan_queue": chanQueue,
	"fib":        fibonacci,
	"idle":       idle,
	"mutex":      mutex,
	"park_mem":   parkMem,
	"pingpong":   pingPong,
	"ring":       ring,
	"select":     selectFour,
	"skynet":     skynet,
	"spawn_join": spawnJoin,
	"yield":      yield,
}

func main() {
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
		fmt.Fprintln(os.Stderr, "usage: gumpbench PROBLEM [--reps N] [--only A,B] [--divide N]; problems:", names)
		os.Exit(2)
	}
	run(o)
}
