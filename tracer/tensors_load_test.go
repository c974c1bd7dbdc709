// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// rate reads what "rate" prints.
func (p *program) rate() (events uint64, took time.Duration) {
	p.t.Helper()
	if _, err := fmt.Fscanf(p.out, "rate %d %d\n", &events, &took); err != nil {
		p.t.Fatal(err)
	}
	return events, took
}

var sampleRates = map[string]uint64{"every tensor": 0, "a sample": 1 << 20}

func TestTwoMillionLiveTensors(t *testing.T) {
	if testing.Short() || os.Getenv("VRAMPROF_LONG") == "" {
		t.Skip("takes a minute: VRAMPROF_LONG=1 runs it")
	}
	const count, most = 2_000_000, 300 << 20
	for name, sample := range sampleRates {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, 1)
			m.keepTorch("2.6")
			m.trace(func(c *Config) { c.Sample = sample })
			p := m.follow("2.6", nil, "alloc a 1M", fmt.Sprintf("live %d 100", count), "totals", "wait")
			before := heap()
			totals := p.totals()
			s := m.snapshot()
			checkTensors(t, name, s, p.pid(), totals, false)
			checkLosses(t, s)
			s = nil
			after := heap()
			begin := time.Now()
			s = m.Snapshot()
			t.Logf("%s: %d live, %d sampled, heap %d MB more, snapshot in %v", name, totals[0].Live, tensorsOf(t, s, p.pid())[0].Sampled,
				int64(after-before)>>20, time.Since(begin).Round(time.Millisecond))
			if after > before+most {
				t.Errorf("%s: the books of %d live tensors take %d MB", name, count, (after-before)>>20)
			}
			p.end()
		})
	}
}

func TestManyTensorsASecondAndNoneIsLost(t *testing.T) {
	const perSecond = 200_000
	seconds := 5
	if testing.Short() || os.Getenv("VRAMPROF_LONG") == "" {
		seconds = 1
	}
	for name, sample := range sampleRates {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, 1)
			m.keepTorch("2.6")
			m.trace(func(c *Config) { c.Sample = sample })
			p := m.follow("2.6", nil, "alloc a 1M", fmt.Sprintf("rate 2 %d %d", seconds, perSecond), "totals", "wait")
			begin := cpuTime()
			events, took := p.rate()
			used := cpuTime() - begin
			totals := p.totals()
			s := m.snapshot()
			checkTensors(t, name, s, p.pid(), totals, false)
			checkLosses(t, s)
			if x := tensorsOf(t, s, p.pid())[0]; x.AllocObjects != events/2+1 {
				t.Errorf("%s: the books have %d allocations, the program %d", name, x.AllocObjects, events/2+1)
			}
			t.Logf("%s: %.0f events/s, the tracer took %.2f of a core", name, float64(events)/took.Seconds(), used.Seconds()/took.Seconds())
			p.end()
		})
	}
}

// TestCostOfTensorEvents only tells: what a pair of allocation and free costs the program.
func TestCostOfTensorEvents(t *testing.T) {
	if testing.Short() || os.Getenv("VRAMPROF_LONG") == "" {
		t.Skip("measures: VRAMPROF_LONG=1 runs it")
	}
	pair := func(m *machine, start func(string, []string, ...string) *program, version string, size int) time.Duration {
		p := start(version, nil, "alloc a 1M", fmt.Sprintf("rate 1 1 0 %d", size), "wait")
		events, took := p.rate()
		p.end()
		return took / time.Duration(events/2)
	}
	for _, sample := range []uint64{64 << 10, 1 << 20, 16 << 20, 0} {
		m := newMachine(t, 1)
		m.keepTorch("2.6", "2.14")
		text := fmt.Sprintf("sample %d:", sample)
		bare := map[string]time.Duration{}
		for _, version := range []string{"2.6", "2.14"} {
			bare[version] = pair(m, m.tensors, version, 4096)
		}
		m.trace(func(c *Config) { c.Sample = sample })
		for _, version := range []string{"2.6", "2.14"} {
			for _, size := range []int{512, 4096, 1 << 20} {
				text += fmt.Sprintf(" %s/%d: %v - %v;", version, size, pair(m, m.follow, version, size), bare[version])
			}
		}
		t.Log(text)
		m.lastly()
		m.Close()
	}
}
