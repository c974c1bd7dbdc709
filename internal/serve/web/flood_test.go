// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// from returns a client whose connections come from an address of this machine.
func from(ip string, keep bool) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: !keep}, Timeout: time.Minute}
}

// ownersByAddress has alice at 127.0.0.2, and root elsewhere.
func ownersByAddress(_, remote netip.AddrPort) (uint32, error) {
	if remote.Addr() == netip.MustParseAddr("127.0.0.2") {
		return alice, nil
	}
	return 0, nil
}

// TestBusyClientsKeepOutNobody: 300 clients of one user ask for profiles as fast as they can,
// beside the probes of Kubernetes, Prometheus and another user, who all get their answers.
func TestBusyClientsKeepOutNobody(t *testing.T) {
	s := New(Config{Session: &slowSession{named: torchSession()}, Ready: func() bool { return true }, Users: []uint32{alice}})
	s.ownerOf = ownersByAddress
	address := listen(t, s)
	ctx, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for i := range 300 {
		wait.Go(func() {
			client := from("127.0.0.2", i%2 == 0)
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				path := []string{"/debug/pprof/gpu?seconds=300", "/metrics", "/debug/pprof/gpu", "/events"}[i%4]
				r, _ := http.NewRequestWithContext(ctx, "GET", "http://"+address+path, nil)
				if x, err := client.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, x.Body)
					x.Body.Close()
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	for s.running.taken() < maxRequests/8 {
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		for _, path := range []string{"/-/healthy", "/-/ready", "/metrics", "/debug/pprof/gpu", "/"} {
			client := from("127.0.0.1", false)
			r, err := client.Get("http://" + address + path)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != 200 {
				t.Errorf("%s: %s, %v", path, r.Status, err)
			}
			r.Body.Close()
		}
	}
	stop()
	wait.Wait()
}

// TestFullConnectionsAreTakenFromWhoHasTheMost, also while all of them are busy.
func TestFullConnectionsAreTakenFromWhoHasTheMost(t *testing.T) {
	c := newConnections()
	pipe := func() net.Conn {
		a, b := net.Pipe()
		t.Cleanup(func() { a.Close(); b.Close() })
		return a
	}
	first := pipe()
	c.add(first, localPeer(1001))
	c.changed(first, http.StateActive)
	for range maxConnections {
		conn := pipe()
		c.add(conn, localPeer(1000))
		c.changed(conn, http.StateActive)
	}
	for i := range 50 {
		c.add(pipe(), testPeer(i))
	}
	if len(c.open) != maxConnections || c.open[first] == nil || c.held[localPeer(1000)] != maxConnections-51 || c.held[testPeer(49)] != 1 {
		t.Errorf("%d open, the other's is %v, the busy client has %d", len(c.open), c.open[first], c.held[localPeer(1000)])
	}
	for conn := range c.open {
		c.changed(conn, http.StateClosed)
	}
	if len(c.held) != 0 {
		t.Errorf("closed connections count: %v", c.held)
	}
}

// TestPagesOfOneClientMakeRoomForOthers: 32 tabs of one user do not keep out another's page.
func TestPagesOfOneClientMakeRoomForOthers(t *testing.T) {
	s := newServer(torchSession())
	s.page.watchers.runs = true // nothing is composed
	var tabs []*watcher
	for range maxWatchers {
		tabs = append(tabs, s.page.join(localPeer(alice)))
	}
	if s.page.join(localPeer(alice)) != nil {
		t.Error("one client has more pages than there are")
	}
	for i := range 3 {
		if s.page.join(localPeer(bob)) == nil {
			t.Fatalf("page %d of another client is refused", i)
		}
		select {
		case <-tabs[i].gone:
		default:
			t.Errorf("tab %d goes on", i)
		}
	}
	if len(s.page.watchers.set) != maxWatchers {
		t.Errorf("%d pages", len(s.page.watchers.set))
	}
}

// endless is an archive whose moments take any time to read.
type endless struct{ began chan struct{} }

func (a endless) At(ctx context.Context, _ time.Time) (*ledger.Snapshot, callstack.Stacks, io.Closer, error) {
	a.began <- struct{}{}
	<-ctx.Done()
	return nil, nil, nil, ctx.Err()
}

func TestReadingTheArchiveEnds(t *testing.T) {
	past := endless{make(chan struct{}, 10)}
	s := New(Config{Session: torchSession(), Archive: past})
	s.pastTime = time.Millisecond
	if w := askAs(s, localPeer(0), "/api/v1/report?at=900"); w.Code != 503 || !strings.Contains(w.Body.String(), "vramprof report") {
		t.Errorf("a moment that takes long: %d %s", w.Code, w.Body)
	}
	s.pastTime = time.Hour
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		r, _ := http.NewRequestWithContext(ctx, "GET", "/", nil)
		done <- s.readPast(asked(r, "127.0.0.1", localPeer(0)), func(ctx context.Context) error { _, _, _, err := past.At(ctx, time.Time{}); return err })
	}()
	<-past.began
	<-past.began
	cancel(nil)
	if err := <-done; !errors.Is(err, context.Canceled) || s.reading.taken() != 0 {
		t.Errorf("a client that went away: %v", err)
	}
}

// TestScarceMemoryRefusesAnswersAndEndsThoseOfTheArchive, keeps none, and goes on later. Health and
// metrics are answered.
func TestScarceMemoryRefusesAnswersAndEndsThoseOfTheArchive(t *testing.T) {
	past := endless{make(chan struct{}, 10)}
	s := New(Config{Session: torchSession(), Archive: past, Ready: func() bool { return true }})
	if s.Relieve() {
		t.Error("nothing was composed, and something was freed")
	}
	s.scarcity.until = time.Time{}
	if w := askAs(s, localPeer(0), "/debug/pprof/gpu"); w.Code != 200 || s.entire == nil || s.answers.bytes == 0 {
		t.Fatalf("%d, %d bytes are kept", w.Code, s.answers.bytes)
	}
	code := make(chan int)
	go func() { code <- askAs(s, localPeer(0), "/api/v1/report?at=900").Code }()
	<-past.began
	if !s.Relieve() || s.entire != nil || s.answers.bytes != 0 {
		t.Errorf("%v, %d bytes are kept", s.entire, s.answers.bytes)
	}
	if got := <-code; got != 503 {
		t.Errorf("a moment of the archive: %d", got)
	}
	for path, want := range map[string]int{"/debug/pprof/gpu": 503, "/": 503, "/api/v1/leaks": 503, "/-/healthy": 200, "/-/ready": 200, "/metrics": 200} {
		if w := askAs(s, localPeer(0), path); w.Code != want || want == 503 && w.Header().Get("Retry-After") == "" {
			t.Errorf("%s while memory is scarce: %d %s", path, w.Code, w.Body)
		}
	}
	if s.Relieve() {
		t.Error("nothing is composed any more, and something was freed")
	}
	s.scarcity.until = time.Time{}
	if w := askAs(s, localPeer(0), "/debug/pprof/gpu"); w.Code != 200 {
		t.Errorf("later: %d", w.Code)
	}
}
