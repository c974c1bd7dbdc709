// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/vramprof/vramprof/report/metrics"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// fakeSession has books that a test sets.
type fakeSession struct {
	snapshot *ledger.Snapshot
	taken    int
}

func (f *fakeSession) Stack(uint64) []callstack.Frame { return nil }
func (f *fakeSession) Snapshot() *ledger.Snapshot     { f.taken++; return f.snapshot }
func (f *fakeSession) Glance() *ledger.Snapshot       { f.taken++; return f.snapshot }
func (f *fakeSession) Own() metrics.Own               { return metrics.Own{} }

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "localhost"
	h.ServeHTTP(w, r)
	return w
}

func TestReadyOnlyWhileTracing(t *testing.T) {
	tracing := false
	h := New(Config{Session: &fakeSession{}, Ready: func() bool { return tracing }}).Handler()
	if w := get(t, h, "/-/ready"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("before tracing: %d", w.Code)
	}
	if w := get(t, h, "/-/healthy"); w.Code != http.StatusOK {
		t.Errorf("healthy: %d", w.Code)
	}
	tracing = true
	if w := get(t, h, "/-/ready"); w.Code != http.StatusOK {
		t.Errorf("while tracing: %d", w.Code)
	}
}

func TestClientsShareOneCopyOfTheBooks(t *testing.T) {
	session := &fakeSession{snapshot: &ledger.Snapshot{}}
	s := New(Config{Session: session})
	for range 10 {
		s.now()
	}
	if session.taken != 1 {
		t.Errorf("the books were copied %d times within a second, want once", session.taken)
	}
}
