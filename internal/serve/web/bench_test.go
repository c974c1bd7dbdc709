// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// busySession has 10,000 sites with 30 frames each, in 100 processes.
type busySession struct {
	*fakeSession
	l    *ledger.Ledger
	pool []callstack.Frame
}

func newBusySession() *busySession {
	b := &busySession{fakeSession: &fakeSession{}, l: ledger.New(ledger.Options{})}
	for i := range 5000 {
		b.pool = append(b.pool, reporttest.Script(fmt.Sprintf("Module%d.forward", i), fmt.Sprintf("/home/ada/llm/part%d.py", i%50), i))
	}
	for pid := range uint32(100) {
		b.l.Tell(ledger.Process{PID: 100 + pid, Begin: 1, Comm: "python3"})
	}
	for i := range uint64(1e5) {
		b.l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: uint32(100 + i%100), Time: i * 1000, Address: 512 * (i + 1), Size: 512, Stack: 1 + i%10000, API: "cudaMalloc"})
	}
	return b
}

func (b *busySession) Snapshot() *ledger.Snapshot { return b.l.Snapshot(1e10, time.Unix(0, 0)) }
func (b *busySession) Glance() *ledger.Snapshot   { return b.Snapshot() }

func (b *busySession) Stack(id uint64) []callstack.Frame {
	list := []callstack.Frame{reporttest.Native("cudaMalloc", reporttest.CUDART, 0x7010)}
	rng := rand.New(rand.NewPCG(id, 1))
	for range 29 {
		list = append(list, b.pool[rng.IntN(len(b.pool))])
	}
	return list
}

// BenchmarkAnswers measures answers of 10,000 sites with new books for each.
func BenchmarkAnswers(b *testing.B) {
	session := newBusySession()
	s := newServer(session)
	for name, path := range map[string]string{"profile": "/debug/pprof/gpu", "process": "/debug/pprof/gpu?pid=107", "leaks": "/api/v1/leaks", "text": "/debug/pprof/gpu?debug=1"} {
		b.Run(name, func(b *testing.B) {
			h, size := s.Handler(), 0
			for b.Loop() {
				s.entire = nil
				w := httptest.NewRecorder()
				h.ServeHTTP(w, asked(httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil), "127.0.0.1", localPeer(0)))
				size = w.Body.Len()
				if w.Code != 200 {
					b.Fatal(w.Code, w.Body)
				}
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
	b.Run("books", func(b *testing.B) {
		for b.Loop() {
			s.entire = nil
			w := httptest.NewRecorder()
			s.Connect().ServeHTTP(w, httptest.NewRequest(http.MethodGet, booksPath+"?whole=1", nil))
			_, _ = io.Copy(io.Discard, w.Body)
		}
	})
}
