// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	reportjson "github.com/vramprof/vramprof/report/json"
)

// TestTracingWaitsForNoClient: while clients flood the server, read nothing or send a byte at a
// time, no event of a program that allocates as fast as it can is lost.
func TestTracingWaitsForNoClient(t *testing.T) {
	long(t) // serve would trace all other tests' programs meanwhile
	dir := setupAlone(t)
	env := dir.Env(t, 1, 1<<30)
	x := startServe(t, env, "-v")
	const rounds = 100_000
	script := fmt.Sprintf("ready\nwait\nrepeat %d\nmalloc a 4096\nfree a\nend\nmalloc z 12345\nprint done\nwait\n", rounds)
	p := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script", script))
	p.expectReady()
	x.waitFor("of libcudart")
	x.waitFor("of libcuda.so")
	time.Sleep(100 * time.Millisecond) // the message comes before the probes
	end := flood(t, x.address)
	p.next()
	p.expect("done")
	end()
	var lost uint64
	var totals []reportjson.TotalReport
	for patience := time.Now().Add(15 * time.Second); time.Now().Before(patience); time.Sleep(100 * time.Millisecond) { // answers may be 10 s old
		var r reportjson.LeaksReport
		if err := json.Unmarshal(x.get(fmt.Sprintf("/api/v1/leaks?pid=%d", p.pid())), &r); err != nil || len(r.Processes) != 1 {
			t.Fatalf("%v, %d processes", err, len(r.Processes))
		}
		lost, totals = r.Losses.LostEvents, r.Processes[0].Totals
		if len(totals) == 1 && totals[0].LiveBytes == 12345 {
			break
		}
	}
	if lost != 0 || len(totals) != 1 || totals[0].AllocatedCount != rounds+1 || totals[0].LiveBytes != 12345 {
		t.Errorf("%d events are lost; %+v, want %d allocations", lost, totals, rounds+1)
	}
}

// flood has bad clients use the server until end is called.
func flood(t *testing.T, address string) (end func()) {
	t.Helper()
	done := make(chan struct{})
	var wait sync.WaitGroup
	each := func(n int, client func(net.Conn)) {
		for range n {
			wait.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					conn, err := net.DialTimeout("tcp", address, time.Second)
					if err != nil {
						continue
					}
					client(conn)
					conn.Close()
				}
			})
		}
	}
	pause := func(d time.Duration) {
		select {
		case <-done:
		case <-time.After(d):
		}
	}
	const header = " HTTP/1.1\r\nHost: localhost\r\n"
	each(300, func(net.Conn) { pause(time.Second) }) // idle
	each(8, func(c net.Conn) {                       // reads nothing
		_, _ = io.WriteString(c, strings.Repeat("GET /debug/pprof/gpu"+header+"\r\n", 100))
		pause(time.Second)
	})
	each(8, func(c net.Conn) { // a byte at a time
		for _, b := range []byte("GET /" + header) {
			_, _ = c.Write([]byte{b})
			pause(20 * time.Millisecond)
		}
	})
	each(4, func(c net.Conn) { // waits for a difference, and goes away
		_, _ = io.WriteString(c, "GET /debug/pprof/gpu?seconds=300"+header+"\r\n")
		pause(100 * time.Millisecond)
	})
	each(2, func(net.Conn) { // asks for everything
		if r, err := http.Get("http://" + address + "/api/v1/report?view=tree"); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
		pause(10 * time.Millisecond)
	})
	return func() { close(done); wait.Wait() }
}
