package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

const httpBody = "Hello, World!"

// httpServers is W13 over HTTP. wrk is the client.
func httpServers(o options) {
	startPinned(0)
	for _, connections := range []int{100, 1000} {
		library, raw := fmt.Sprintf("W13http/%d", connections), fmt.Sprintf("W13rawhttp/%d", connections)
		for r := 0; r < o.reps; r++ {
			if o.selected(library) {
				httpOnce(o, library, connections, serveHTTP)
			}
			if o.selected(raw) {
				httpOnce(o, raw, connections, serveRawHTTP)
			}
		}
	}
}

func serveHTTP(l net.Listener) {
	http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, httpBody)
	}))
}

func serveRawHTTP(l net.Listener) {
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n" + httpBody)
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var buf [4096]byte
			have := 0
			for {
				n, err := conn.Read(buf[have:])
				if err != nil {
					return
				}
				have += n
				if !bytes.HasSuffix(buf[:have], []byte("\r\n\r\n")) {
					continue
				}
				have = 0
				if _, err := conn.Write(answer); err != nil {
					return
				}
			}
		}()
	}
}

func wrk(port, connections, seconds int) string {
	said, _ := exec.Command("taskset", "-c", "1", "wrk", "--latency", "-t1", fmt.Sprintf("-c%d", connections),
		fmt.Sprintf("-d%ds", seconds), fmt.Sprintf("http://127.0.0.1:%d/", port)).CombinedOutput()
	return string(said)
}

func httpOnce(o options, workload string, connections int, serve func(net.Listener)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go serve(l)
	port := l.Addr().(*net.TCPAddr).Port
	wrk(port, connections, 1)
	cpu := cpuNanos()
	said := wrk(port, connections, o.scaled(3))
	used := float64(cpuNanos() - cpu)
	l.Close()
	var requests, perSecond float64
	var p50, p99 time.Duration
	for _, line := range strings.Split(said, "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "50%":
			p50, _ = time.ParseDuration(fields[1])
		case len(fields) == 2 && fields[0] == "99%":
			p99, _ = time.ParseDuration(fields[1])
		case len(fields) > 2 && fields[1] == "requests":
			fmt.Sscan(fields[0], &requests)
		case len(fields) == 2 && fields[0] == "Requests/sec:":
			fmt.Sscan(fields[1], &perSecond)
		}
	}
	if perSecond == 0 || strings.Contains(said, "Non-2xx") || strings.Contains(said, "Socket errors") {
		fmt.Fprintf(os.Stderr, "%s: wrk failed:\n%s", workload, said)
		os.Exit(1)
	}
	report(workload, "cpu-us", used/1e3/requests)
	report(workload, "req/s", perSecond)
	report(workload, "p50-us", float64(p50.Nanoseconds())/1e3)
	report(workload, "p99-us", float64(p99.Nanoseconds())/1e3)
}
