// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestMetricsAreServedInBothFormats(t *testing.T) {
	h := New(Config{Session: &fakeSession{snapshot: reporttest.TorchSnapshot()}}).Handler()
	for accept, want := range map[string]string{
		"": "text/plain; version=0.0.4",
		"application/openmetrics-text; version=1.0.0": "application/openmetrics-text; version=1.0.0",
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = "localhost"
		r.Header.Set("Accept", accept)
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || !strings.HasPrefix(got, want) {
			t.Errorf("%q: %d, %s", accept, w.Code, got)
		}
		for _, name := range []string{"vramprof_memory_bytes{", "vramprof_build_info{", "process_cpu_seconds_total", "process_resident_memory_bytes", "go_goroutines"} {
			if !strings.Contains(w.Body.String(), "\n"+name) {
				t.Errorf("%q: no %s", accept, name)
			}
		}
		if strings.Contains(w.Body.String(), "process_network_") {
			t.Errorf("%q: the machine's network is shown as vramprof's", accept)
		}
		if isOpen := strings.HasSuffix(w.Body.String(), "# EOF\n"); isOpen != (accept != "") {
			t.Errorf("%q ends with # EOF: %v", accept, isOpen)
		}
	}
}

func TestMetricsByProcessOnlyOnDemand(t *testing.T) {
	for _, pid := range []bool{false, true} {
		h := New(Config{Session: &fakeSession{snapshot: reporttest.TorchSnapshot()}, MetricsPID: pid}).Handler()
		if got := strings.Contains(get(t, h, "/metrics").Body.String(), `pid="4242"`); got != pid {
			t.Errorf("MetricsPID %v: pid in the labels: %v", pid, got)
		}
	}
}

// TestScrapesBeyondTheLimitWaitAndAreRefused holds all places. The client gives up first.
func TestScrapesBeyondTheLimitWaitAndAreRefused(t *testing.T) {
	s := New(Config{Session: &fakeSession{snapshot: reporttest.TorchSnapshot()}})
	for i := range maxScrapes {
		s.scraping.hold(t, testPeer(i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil).WithContext(ctx)
	if _, err := s.scrape(r, testPeer(maxScrapes)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beside %d scrapes: %v", maxScrapes, err)
	}
	s.scraping.leave(testPeer(0))
	if w := get(t, s.Handler(), "/metrics"); w.Code != http.StatusOK || s.scraping.taken() != maxScrapes-1 {
		t.Errorf("with a free place: %d, %d places taken", w.Code, s.scraping.taken())
	}
}

func TestListenersShareTheirCounters(t *testing.T) {
	session := &fakeSession{snapshot: reporttest.TorchSnapshot()}
	s := New(Config{Session: session})
	first := get(t, s.Handler(), "/metrics").Body.String()
	less := *session.snapshot
	less.Processes, less.Sites, less.Tensors, less.Balances = nil, nil, nil, nil
	s.moment, session.snapshot = nil, &less
	second := get(t, s.Handler(), "/metrics").Body.String()
	const series = `vramprof_allocations_total{UUID="GPU-5e6f7a8b-0000-0000-0000-000000000000",container="",gpu="1",hpc_job="",kind="async",namespace="",pod="",user=""} 8`
	if !strings.Contains(first, series) || !strings.Contains(second, series) {
		t.Errorf("no %s in what the second listener answers:\n%s", series, second)
	}
}

// BenchmarkMetrics is what a scrape over HTTP costs with 100 processes on 8 GPUs and 100 sites
// each, including the copy of its series and their text.
func BenchmarkMetrics(b *testing.B) {
	s := New(Config{Session: &newBooks{fakeSession{snapshot: hundred()}}})
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	var size int64
	for b.Loop() {
		s.mu.Lock()
		s.moment = nil // each scrape has books of its own
		s.mu.Unlock()
		r, err := http.Get(server.URL + "/metrics")
		if err != nil {
			b.Fatal(err)
		}
		size, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	b.ReportMetric(float64(size), "bytes")
}

// newBooks has books that are new each time.
type newBooks struct{ fakeSession }

func (b *newBooks) Glance() *ledger.Snapshot {
	s := *b.snapshot
	return &s
}

// hundred has 100 processes in pods on 8 GPUs, with 100 sites each.
func hundred() *ledger.Snapshot {
	s := &ledger.Snapshot{Begin: 1, End: 100 * reporttest.Second}
	for i := range 8 {
		s.GPUs = append(s.GPUs, ledger.GPU{Index: i, UUID: fmt.Sprintf("GPU-%08d", i), Total: 80 << 30, Used: 40 << 30})
	}
	for i := range 100 {
		uuid := s.GPUs[i%8].UUID
		s.Processes = append(s.Processes, ledger.Process{
			PID: uint32(i + 1), Begin: 1, Devices: []string{uuid}, Workload: ledger.Workload{Namespace: "ml", Pod: fmt.Sprint("train-", i), Container: fmt.Sprint("c", i)},
			Totals: []ledger.Total{{Kind: ledger.Device, LiveObjects: 20, LiveBytes: 1 << 30, AllocObjects: 99, AllocBytes: 2 << 30}, {Kind: ledger.Tensor, LiveObjects: 80, LiveBytes: 1 << 29, AllocObjects: 99, AllocBytes: 2 << 30}},
		})
		s.Balances = append(s.Balances, ledger.Balance{Process: i, UUID: uuid, Usage: 2 << 30, Baseline: 300 << 20, Live: 1 << 30})
		s.Tensors = append(s.Tensors, ledger.Tensors{Process: i, Allocated: 1 << 29, Reserved: 1 << 30, Peak: 1 << 29, LiveObjects: 80, LiveBytes: 1 << 29, Segments: 1 << 30, Cached: 1 << 29})
		for k := range 100 {
			x := ledger.Site{Process: i, Stack: uint64(i*100 + k + 1), Kind: ledger.Tensor, LiveObjects: 1, LiveBytes: 6 << 20, AllocObjects: 2, AllocBytes: 9 << 20, Oldest: 5, History: reporttest.Ramp(6 << 20)}
			if k < 20 {
				x.Kind, x.Segment, x.API = ledger.Device, true, "cudaMalloc"
			}
			s.Sites = append(s.Sites, x)
		}
	}
	return s
}
