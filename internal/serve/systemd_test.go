// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/serve/web"
)

func TestASystemdThatDoesNotReadHoldsUpNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	n := newNotifier()
	n.wait = time.Millisecond
	for range 600 { // more than the socket's queue has; without an end of the wait the test never ends
		n.tell("WATCHDOG=1")
	}
	state := make([]byte, 64)
	if size, err := socket.Read(state); err != nil || string(state[:size]) != "WATCHDOG=1" {
		t.Errorf("systemd was told %q, %v", state[:size], err)
	}
}

// TestAStuckWorkerIsNotReadyAndFeedsNoWatchdog: serve found no new job, and said that all was well.
func TestAStuckWorkerIsNotReadyAndFeedsNoWatchdog(t *testing.T) {
	var age, looks atomic.Int64
	s := &server{jobAge: func() time.Duration { looks.Add(1); return time.Duration(age.Load()) }}
	s.ready.Store(true)
	s.tracing.Store(true)
	pages := web.New(web.Config{Ready: s.isReady}).Handler()
	for _, c := range []struct {
		age  time.Duration
		code int
	}{{readyAge - 1, http.StatusOK}, {readyAge, http.StatusServiceUnavailable}, {0, http.StatusOK}} {
		age.Store(int64(c.age))
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/-/ready", nil))
		if w.Code != c.code {
			t.Errorf("the oldest job has waited %v: %d, want %d", c.age, w.Code, c.code)
		}
	}

	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	n := newNotifier()
	n.every = time.Millisecond
	age.Store(int64(aliveAge))
	ctx, end := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { n.watch(ctx, s.alive) })
	for first := looks.Load(); looks.Load() < first+3; time.Sleep(time.Millisecond) {
	}
	end()
	watch.Wait()
	n.stopping()
	state := make([]byte, 64)
	if size, err := socket.Read(state); err != nil || string(state[:size]) != "STOPPING=1" {
		t.Errorf("systemd was told %q, %v", state[:size], err)
	}
}
