package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"unsafe"
)

// pinTo pins this thread, and all that it makes, to one processor, as taskset does.
func pinTo(cpu int) {
	set := [16]uint64{1 << uint(cpu)}
	syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(set), uintptr(unsafe.Pointer(&set)))
}

// startPinned starts the program again, pinned, because threads that exist keep their affinity.
func startPinned(cpu int) {
	if os.Getenv("BENCH_PINNED") != "" {
		return
	}
	pinTo(cpu)
	os.Setenv("BENCH_PINNED", "1")
	self, _ := os.Executable()
	syscall.Exec(self, os.Args, os.Environ())
}

// echo is W13. BENCH_LOADGEN is the client.
func echo(o options) {
	startPinned(0)
	for _, connections := range []int{100, 1000, 5000} {
		workload := fmt.Sprintf("W13/%d", connections)
		for r := 0; r < o.reps && o.selected(workload); r++ {
			echoOnce(o, workload, connections)
		}
	}
}

func echoOnce(o options, workload string, connections int) {
	defer beside(o)()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				var buf [4096]byte
				for {
					n, err := conn.Read(buf[:])
					if err != nil {
						return
					}
					if _, err := conn.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	cmd := exec.Command("taskset", "-c", "1", os.Getenv("BENCH_LOADGEN"), strconv.Itoa(l.Addr().(*net.TCPAddr).Port),
		strconv.Itoa(connections), strconv.Itoa(o.scaled(500)), strconv.Itoa(o.scaled(3000)))
	out, _ := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	var cpu int64
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "begin" {
			cpu = cpuNanos()
			continue
		}
		var requests, p50, p99 float64
		if n, _ := fmt.Sscanf(lines.Text(), "end %f %f %f", &requests, &p50, &p99); n == 3 {
			used := float64(cpuNanos() - cpu)
			report(workload, "cpu-us", used/1e3/requests)
			report(workload, "req/s", requests*1e3/float64(o.scaled(3000)))
			report(workload, "p50-us", p50)
			report(workload, "p99-us", p99)
		}
	}
	cmd.Wait()
	l.Close()
}
