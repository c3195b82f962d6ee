// The base of the generated programs; see prelude.h.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

type Lock struct {
	mu      sync.Mutex
	rw      sync.RWMutex
	cond    *sync.Cond
	once    sync.Once
	n, x, y int64
	done    bool
	queue   []int64
	table   map[int64]int64
}

func NewLock() *Lock {
	l := &Lock{table: map[int64]int64{}}
	l.cond = sync.NewCond(&l.mu)
	return l
}

type Request struct {
	v     int64
	reply chan int64
}

type Out struct {
	mu    sync.Mutex
	lines []string
}

func (o *Out) Emit(tag int, v int64) { o.Text(tag, strconv.FormatInt(v, 10)) }

func (o *Out) Text(tag int, v string) {
	o.mu.Lock()
	o.lines = append(o.lines, strconv.Itoa(tag)+" "+v)
	o.mu.Unlock()
}

func (o *Out) Caught(tag int, f func()) {
	defer func() {
		switch r := recover().(type) {
		case nil:
			o.Text(tag, "no panic")
		case error:
			o.Text(tag, r.Error())
		case string:
			o.Text(tag, r)
		}
	}()
	f()
}

func (o *Out) Print() {
	o.mu.Lock()
	sort.Strings(o.lines)
	for _, line := range o.lines {
		fmt.Println(line)
	}
	o.mu.Unlock()
}

// Not every generated file needs all of these.
var _ = context.Background
var _ = errors.Is
var _ = reflect.Select
var _ = runtime.Gosched
var _ = atomic.AddInt64
var _ = time.Now

func main() {
	seed, _ := strconv.Atoi(os.Args[1])
	p, ok := programs[seed]
	if !ok {
		fmt.Fprintln(os.Stderr, "no program", seed)
		os.Exit(3)
	}
	p(&Out{})
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
