// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func answerTo(t *testing.T, r *bufio.Reader) *http.Response {
	t.Helper()
	x, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, x.Body)
	return x
}

func TestHugeRequestsAreRefused(t *testing.T) {
	address := listen(t, newServer(torchSession()))
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"path":   {"GET /" + strings.Repeat("a", 100<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 431},
		"query":  {"GET /debug/pprof/gpu?pod=" + strings.Repeat("a", 8<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
		"header": {"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 100<<10) + "\r\n\r\n", 431},
		"many":   {"GET / HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X: a\r\n", 100<<10/6) + "\r\n", 431},
		"length": {"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", 413},
		"chunks": {"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", 413},
		"verb":   {strings.Repeat("G", 20) + " / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
		"none":   {"GET /-/healthy HTTP/1.1\r\n\r\n", 400}, // no Host
		"noise":  {"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400},
		"star":   {"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
	} {
		conn := dial(t, address)
		go func() { _, _ = io.WriteString(conn, c.text) }()
		x, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || x.StatusCode != c.want || !x.Close && name != "query" {
			t.Errorf("%s: %v %v, want %d and the end of the connection", name, x, err, c.want)
		}
		conn.Close()
	}
}

func TestOldAndPipelinedRequests(t *testing.T) {
	address := listen(t, newServer(torchSession()))
	old := dial(t, address)
	send(t, old, "GET /-/healthy HTTP/1.0\r\n\r\n")
	text, err := io.ReadAll(old)
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.0 200 OK\r\n") {
		t.Errorf("HTTP/1.0: %v %q", err, text)
	}
	several := dial(t, address)
	send(t, several, strings.Repeat("GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n", 50)+"GET /-/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
	r := bufio.NewReader(several)
	for i := range 50 {
		if x := answerTo(t, r); x.StatusCode != 200 {
			t.Fatalf("answer %d: %s", i, x.Status)
		}
	}
	if x := answerTo(t, r); x.StatusCode != 404 {
		t.Errorf("the last answer: %s", x.Status)
	}
}

// TestSlowClientsAreCutOff: one that sends a byte at a time, and one that reads nothing.
func TestSlowClientsAreCutOff(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(torchSession())
	mux := http.NewServeMux()
	written := make(chan error, 1)
	mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		s.expensive(r, func() ([]byte, error) { return make([]byte, 64<<20), nil }, func(b []byte) {
			_, err := w.Write(b)
			written <- err
		}, func(err error) { written <- err })
	})
	x := s.HTTP(s.guard(mux), slog.New(slog.NewTextHandler(io.Discard, nil)))
	x.ReadHeaderTimeout, x.WriteTimeout = 300*time.Millisecond, 300*time.Millisecond // minutes, in a test
	go func() { _ = x.Serve(socket) }()
	defer x.Close()

	sends := dial(t, socket.Addr().String())
	ended := make(chan bool)
	go func() {
		for _, b := range []byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("a", 1000)) {
			if _, err := sends.Write([]byte{b}); err != nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		close(ended)
	}()
	reads := dial(t, socket.Addr().String())
	send(t, reads, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select {
	case err := <-written:
		if err == nil {
			t.Error("64 MiB were written to a client that reads nothing")
		}
	case <-time.After(10 * time.Second):
		t.Error("a client that reads nothing is still written to")
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("a client that sends a byte at a time still does")
	}
	for end := time.Now().Add(5 * time.Second); s.writing.taken()+s.composing.taken() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the slow client keeps its place")
		}
	}
}

func TestAThousandConnectionsKeepOutNobody(t *testing.T) {
	s := newServer(torchSession())
	address := listen(t, s)
	for i := range 1000 {
		conn := dial(t, address)
		if i%2 == 0 { // used once, and idle since
			send(t, conn, "GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	for range 10 {
		r, err := client.Get("http://" + address + "/-/healthy")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
	s.connections.mu.Lock()
	defer s.connections.mu.Unlock()
	if n := len(s.connections.open); n > maxConnections {
		t.Errorf("%d connections are open, limit %d", n, maxConnections)
	}
}

// slowSession counts how many copies of the books are taken at once.
type slowSession struct {
	named
	now, most, all atomic.Int32
}

func (s *slowSession) Snapshot() *ledger.Snapshot {
	n := s.now.Add(1)
	defer s.now.Add(-1)
	s.most.Store(max(s.most.Load(), n))
	s.all.Add(1)
	time.Sleep(50 * time.Millisecond)
	return s.snapshot
}

func (s *slowSession) Stack(id uint64) []callstack.Frame { return s.named.Stack(id) }

// TestManyClientsTakeTheBooksOnce: tracing gives one copy of the books, however many ask.
func TestManyClientsTakeTheBooksOnce(t *testing.T) {
	session := &slowSession{named: torchSession()}
	s := newServer(session)
	address := listen(t, s)
	var wait sync.WaitGroup
	var busy, whole atomic.Int32
	for i := range 100 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			switch code := status(t, fmt.Sprintf("http://%s/debug/pprof/gpu?device=%d", address, i%4)); code {
			case 200:
				whole.Add(1)
			case 503:
				busy.Add(1)
			default:
				t.Errorf("status %d", code)
			}
		}()
	}
	wait.Wait()
	if session.most.Load() != 1 || session.all.Load() > 3 || whole.Load() == 0 {
		t.Errorf("%d copies, %d at once; %d answers, %d refused", session.all.Load(), session.most.Load(), whole.Load(), busy.Load())
	}
}

func TestDifferencesThatWaitAreBounded(t *testing.T) {
	s := newServer(newGrowing())
	for i := range maxWaiting {
		s.waiting.hold(t, testPeer(i))
	}
	w := ask(t, s, "GET", "/debug/pprof/gpu?seconds=300", nil)
	if w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
	if w := ask(t, s, "GET", "/debug/pprof/gpu", nil); w.Code != 200 {
		t.Errorf("another request: %d", w.Code)
	}
}

func TestGateGivesUp(t *testing.T) {
	g, p := newGate(1), localPeer(0)
	if err := g.enter(t.Context(), p, time.Second); err != nil {
		t.Fatal(err)
	}
	if err := g.enter(t.Context(), p, time.Millisecond); !errors.Is(err, errBusy) {
		t.Errorf("a full gate: %v", err)
	}
	g.leave(p)
	if err := g.enter(t.Context(), p, time.Millisecond); err != nil {
		t.Errorf("an empty gate: %v", err)
	}
}

func TestHTTP2WithTLS(t *testing.T) {
	s := newServer(torchSession())
	server := httptest.NewUnstartedServer(s.Handler())
	server.Config, server.EnableHTTP2 = s.HTTP(s.Handler(), slog.New(slog.NewTextHandler(io.Discard, nil))), true
	server.StartTLS()
	defer server.Close()
	for _, path := range []string{"/-/healthy", "/debug/pprof/gpu?seconds=1"} {
		r, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if r.ProtoMajor != 2 || r.StatusCode != 200 || err != nil || len(body) == 0 {
			t.Errorf("%s: %s %s, %d bytes, %v", path, r.Proto, r.Status, len(body), err)
		}
	}
	plain, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	send(t, plain, "GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if x := answerTo(t, bufio.NewReader(plain)); x.StatusCode != 200 {
		t.Errorf("HTTP/1.1 over TLS: %s", x.Status)
	}
}

// TestLongAnswersOutlastTheTimeForRequests: ?seconds= may be longer than a request may take to
// arrive.
func TestLongAnswersOutlastTheTimeForRequests(t *testing.T) {
	s := newServer(newGrowing())
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := s.HTTP(s.Handler(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	x.ReadHeaderTimeout, x.ReadTimeout, x.WriteTimeout = 200*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
	go func() { _ = x.Serve(socket) }()
	defer x.Close()
	if code := status(t, "http://"+socket.Addr().String()+"/debug/pprof/gpu?seconds=1"); code != 200 {
		t.Errorf("status %d", code)
	}
}

// TestDifferencesEndWithTheServer: a client that waits does not delay the end.
func TestDifferencesEndWithTheServer(t *testing.T) {
	s := newServer(newGrowing())
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := s.HTTP(s.Handler(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	go func() { _ = x.Serve(socket) }()
	code := make(chan int, 1)
	go func() { code <- status(t, "http://"+socket.Addr().String()+"/debug/pprof/gpu?seconds=300") }()
	for s.waiting.taken() == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := x.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != http.StatusServiceUnavailable {
		t.Errorf("status %d", got)
	}
}
