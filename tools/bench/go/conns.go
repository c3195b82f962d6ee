package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// conns is CONNS. BENCH_DIALER is the client.
func conns(o options) {
	startPinned(0)
	if o.selected("CONNS/idle") {
		connsIdle(o)
	}
	for r := 0; r <= o.reps && o.selected("CONNS/accept"); r++ {
		connsAccept(o)
	}
}

func connsServe(conn net.Conn) {
	defer conn.Close()
	var buf [1024]byte
	for {
		n, err := conn.Read(buf[:])
		if err != nil {
			return
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
	}
}

// connsDrive serves every connection until the dialer has printed a line and the function told has returned.
func connsDrive(count, atOnce int, told func(line string)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	client := make(chan struct{})
	go func() {
		defer close(client)
		cmd := exec.Command("taskset", "-c", "1", os.Getenv("BENCH_DIALER"), strconv.Itoa(l.Addr().(*net.TCPAddr).Port),
			strconv.Itoa(count), strconv.Itoa(atOnce))
		out, _ := cmd.StdoutPipe()
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		if lines := bufio.NewScanner(out); lines.Scan() {
			told(lines.Text())
		}
		l.Close()
		cmd.Wait()
	}()
	var open []net.Conn
	for {
		conn, err := l.Accept()
		if err != nil {
			break
		}
		if atOnce == 0 {
			open = append(open, conn)
		}
		go connsServe(conn)
	}
	for _, conn := range open {
		conn.Close()
	}
	<-client
}

func connsIdle(o options) {
	count := o.scaled(10000)
	connsDrive(1, 0, func(string) {})
	before := rssBytes()
	connsDrive(count, 0, func(string) {
		time.Sleep(100 * time.Millisecond)
		report("CONNS/idle", "B/conn", float64(rssBytes()-before)/float64(count))
		cpu, start := cpuNanos(), time.Now()
		time.Sleep(time.Duration(o.scaled(5000)) * time.Millisecond)
		report("CONNS/idle", "cpu-%", 100*float64(cpuNanos()-cpu)/float64(time.Since(start)))
	})
}

func connsAccept(o options) {
	cpu := cpuNanos()
	connsDrive(o.scaled(50000), 100, func(line string) {
		var done, nanos float64
		if n, _ := fmt.Sscanf(line, "end %f %f", &done, &nanos); n == 2 {
			report("CONNS/accept", "us/conn", nanos/1e3/done)
			report("CONNS/accept", "cpu-us", float64(cpuNanos()-cpu)/1e3/done)
		}
	})
}
