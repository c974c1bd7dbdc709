// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestRowsAddUpToWhatNVMLReports: each byte of a GPU is in one row.
func TestRowsAddUpToWhatNVMLReports(t *testing.T) {
	s := reporttest.Snapshot()
	list := Of(s, verdict.JudgeLines(s, verdict.Judge(s, reporttest.Stacks())))
	if len(list) == 0 {
		t.Fatal("no GPU")
	}
	for _, b := range list {
		sum := uint64(0)
		for _, r := range b.Rows {
			sum += r.Bytes
		}
		if b.GPU == nil || sum != b.Used || b.Used != b.GPU.Now() {
			t.Errorf("%+v: rows have %d bytes", b, sum)
		}
	}
	if list[0].Class() != verdict.Leaking || list[0].Row(Driver) == nil || !list[0].Row(Driver).Grows() || list[0].Full == 0 {
		t.Errorf("the leak of the sample does not grow: %+v", list[0])
	}
}

// TestOtherProcessesGrow: what no traced process has grows by NVML's readings, and what stands
// still does not.
func TestOtherProcessesGrow(t *testing.T) {
	for _, step := range []uint64{0, 64 << 20} {
		s := reporttest.Snapshot()
		b := Of(s, nil)[0]
		g := b.GPU
		g.Past = nil
		for i := range uint64(30) {
			g.Past = append(g.Past, ledger.GPUPast{Time: s.Begin + i*1e9, Used: g.Used + i*step, Traced: g.Used})
		}
		for _, b := range Of(s, nil) {
			if b.GPU == g && b.Row(Others).Grows() != (step > 0) {
				t.Errorf("%d bytes a second: %+v", step, b.Row(Others))
			}
		}
	}
}

// TestPoolsThatAreNotDestroyedGrow: what memory pools hold unused grows by NVML's readings, if the
// pools hold most of that.
func TestPoolsThatAreNotDestroyedGrow(t *testing.T) {
	for _, held := range []uint64{0, 3 << 30} {
		s := &ledger.Snapshot{
			Begin: 1e9, End: 61e9, Processes: []ledger.Process{{PID: 7, Begin: 1e9}},
			GPUs:     []ledger.GPU{{UUID: "GPU-a", Total: 16 << 30, Used: 4 << 30, Time: 61e9}},
			Balances: []ledger.Balance{{UUID: "GPU-a", Usage: 4 << 30, Rounding: 3 << 30}},
		}
		for range 2 {
			s.Pools = append(s.Pools, ledger.Pool{Device: 0, Held: held / 2, Least: held / 2})
		}
		for i := range uint64(31) {
			used := 1<<30 + i*(100<<20)
			s.GPUs[0].Past = append(s.GPUs[0].Past, ledger.GPUPast{Time: s.Begin + i*2e9, Used: used, Traced: used})
		}
		r := Of(s, nil)[0].Row(Driver)
		if r.Grows() != (held > 0) || r.Grows() && (r.Class != verdict.Leaking || r.Pools != 2 || r.Pooled != held || r.Grown > held) {
			t.Errorf("%d bytes in pools: %+v", held, r)
		}
	}
}

// TestAPausedProcessFillsNoGPU: a process that allocates nothing for longer than half of the time
// in which it grew may never go on: nothing is said of when the GPU is full.
func TestAPausedProcessFillsNoGPU(t *testing.T) {
	for _, pause := range []bool{false, true} {
		s := reporttest.Snapshot()
		if pause {
			s.End += s.End - s.Begin
		}
		b := Of(s, verdict.JudgeLines(s, verdict.Judge(s, reporttest.Stacks())))[0]
		if r := b.Row(Driver); b.Class() != verdict.Leaking || r.Paused() != pause || (b.Full == 0) != pause {
			t.Errorf("pause %v: idle %v, grew for %v, full in %v", pause, r.Idle, r.Over, b.Full)
		}
	}
}

// TestTensorsThatWereNotTracedAreTensors: a budget moves tensors from before the attach to those
// that were not traced, and nothing to other processes.
func TestTensorsThatWereNotTracedAreTensors(t *testing.T) {
	of := func(s *ledger.Snapshot) (tensors, others uint64) {
		for _, b := range Of(s, nil) {
			for _, r := range b.Rows {
				switch r.Plane {
				case Tensors:
					tensors += r.Bytes
				case Others:
					others += r.Bytes
				}
			}
		}
		return tensors, others
	}
	s := reporttest.Held()
	tensors, others := of(s)
	s.Tensors[0].Untraced = s.Tensors[0].Older / 2
	if a, b := of(s); s.Tensors[0].Untraced == 0 || a != tensors || b != others {
		t.Errorf("%d bytes of tensors and %d of others, want %d and %d", a, b, tensors, others)
	}
}
