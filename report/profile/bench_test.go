// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// manyStacks gives each id 30 frames, of which most are shared.
type manyStacks struct{ pool []callstack.Frame }

func newManyStacks() *manyStacks {
	m := &manyStacks{}
	for i := range 5000 {
		m.pool = append(m.pool, reporttest.Script(fmt.Sprintf("Module%d.forward", i), fmt.Sprintf("/home/ada/llm/part%d.py", i%50), i))
	}
	return m
}

func (m *manyStacks) Stack(id uint64) []callstack.Frame {
	list := []callstack.Frame{reporttest.Native("cudaMalloc", reporttest.CUDART, 0x7010)}
	rng := rand.New(rand.NewPCG(id, 1))
	for range 29 {
		list = append(list, m.pool[rng.IntN(len(m.pool))])
	}
	return list
}

func BenchmarkProfile(b *testing.B) {
	b.Run("live=1e6/sites=1e4", func(b *testing.B) {
		l := ledger.New(ledger.Options{})
		for i := range uint64(1e6) {
			l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Time: i * 1000, Address: 512 * (i + 1), Size: 512, Stack: 1 + i%10000, API: "cudaMalloc"})
		}
		st := newManyStacks()
		b.ReportAllocs()
		size := 0
		for b.Loop() {
			var out bytes.Buffer
			if err := Write(&out, l.Snapshot(1e10, time.Unix(0, 0)), st); err != nil {
				b.Fatal(err)
			}
			size = out.Len()
		}
		b.ReportMetric(float64(size), "file-bytes")
		b.ReportMetric(float64(peakRSS())/(1<<20), "peak-RSS-MiB")
	})
}

// peakRSS of this process in bytes, 0 if the kernel does not say.
func peakRSS() (bytes uint64) {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fmt.Sscan(rest, &bytes)
	return bytes << 10
}
