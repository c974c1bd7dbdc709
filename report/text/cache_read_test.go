// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestCacheViewShowsWhatTheCacheOfAnOlderProcessIsMadeOf(t *testing.T) {
	s := reporttest.Caches()
	for _, width := range []int{44, 80, 120} {
		reporttest.Golden(t, fmt.Sprintf("allocators%d.txt", width), []byte(cacheView(t, s, report.Options{}, width)))
	}
	for width := minWidth; width <= 130 && !t.Failed(); width++ {
		cacheView(t, s, report.Options{Top: 2}, width)
	}
}

func TestAPrivatePoolIsNamedByItsLine(t *testing.T) {
	s := reporttest.Caches()
	s.Caches[0].Origins = []ledger.PoolOrigin{{Pool: [2]uint64{1, 0}, Stack: 14, API: "cudaMalloc"}, {Pool: [2]uint64{0, 5}, Stack: 12, API: "cudaMalloc"}}
	for width := minWidth; width <= 130 && !t.Failed(); width++ {
		cacheView(t, s, report.Options{}, width)
	}
	text := strings.Join(strings.Fields(cacheView(t, s, report.Options{}, 120)), " ")
	want := "Private pools, by the line that made their first segment: - CUDA graph 1 /home/ada/llm/model.py:40 Block.forward"
	if !strings.Contains(text, want) || strings.Contains(text, "metrics.py:31 Metrics.update - MemPool 5") || strings.Contains(text, "MemPool 5") {
		t.Errorf("the view lacks %q:\n%s", want, text)
	}
}

// TestAPoolShowsTheSizesOfTheGraphsThatWereCapturedIntoIt: by the line that captured them.
func TestAPoolShowsTheSizesOfTheGraphsThatWereCapturedIntoIt(t *testing.T) {
	s := reporttest.Caches()
	pool := [2]uint64{1, 0}
	s.Caches[0].Origins = []ledger.PoolOrigin{{Pool: pool, Stack: 14, API: "cudaMalloc"}}
	for i, mib := range []uint64{2, 8, 1, 1, 4, 1} {
		s.Caches[0].Captures = append(s.Caches[0].Captures, ledger.PoolCapture{Pool: pool, Stack: 14, API: "cudaGraphInstantiate", Time: s.Begin + uint64(i), Bytes: mib << 20})
	}
	s.Caches[0].Captures = append(s.Caches[0].Captures, ledger.PoolCapture{Pool: pool, Stack: 12, API: "cudaGraphInstantiate", Bytes: 3 << 20})
	for width := minWidth; width <= 130 && !t.Failed(); width++ {
		cacheView(t, s, report.Options{}, width)
	}
	text := strings.Join(strings.Fields(cacheView(t, s, report.Options{}, 120)), " ")
	want := "- CUDA graph 1 /home/ada/llm/model.py:40 Block.forward " +
		"took 17.0 MiB /home/ada/llm/model.py:40 Block.forward for 6 CUDA graphs: 8.00 MiB, 4.00 MiB, 2.00 MiB, 1.00 MiB, 2 more " +
		"took 3.00 MiB /home/ada/llm/metrics.py:31 Metrics.update for 1 CUDA graph"
	if !strings.Contains(text, want) {
		t.Errorf("the view lacks %q:\n%s", want, text)
	}
}

func TestAReadingThatWasSettledHasNoDoubt(t *testing.T) {
	s := reporttest.Caches()
	s.Caches[0].Exact, s.Caches[0].Settled = false, true
	if text := report.AllocatorDoubt(s, &s.Caches[0]); text != "" {
		t.Error(text)
	}
}

func TestAReadingThatIsOldOrInMotionSaysSo(t *testing.T) {
	s := reporttest.Caches()
	s.Caches[0].Exact, s.Caches[0].OffBytes = false, 3<<20
	s.End += 5 * reporttest.Second
	text := strings.Join(strings.Fields(cacheView(t, s, report.Options{}, 80)), " ")
	if want := "Read 6.0s before this moment while PyTorch allocated: up to 3.00 MiB of tensors may be missing or freed"; !strings.Contains(text, want) {
		t.Errorf("the view lacks %q:\n%s", want, text)
	}
}

func TestAnOutOfMemoryErrorNamesTheKindsOfFragmentation(t *testing.T) {
	s := reporttest.Caches()
	c := s.Caches[0]
	o := report.OOM{PID: s.Processes[0].PID, Time: s.End, Device: 0, Size: 64 << 20, API: "torch", Kind: ledger.Tensor, Allocated: c.Allocated, Reserved: c.Reserved}
	v := newOOMCase(s, &o)
	if got, want := v.why(), "650 MiB are cached, but the largest free run is 20.0 MiB: 401 MiB next to live tensors, 216 MiB only for other streams, 12.0 MiB only for CUDA graphs or MemPools, 1.00 MiB in pieces of at most 1 MiB, 20.0 MiB in segments without a tensor."; got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	s.Caches[0].Time -= 60 * reporttest.Second // it does not explain the error any more
	if got := v.why(); strings.Contains(got, "streams") {
		t.Error(got)
	}
}
