// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"io"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// manyTensors returns what was read of a process that has so many tensors in a list.
func manyTensors(n int) reader {
	dice := rand.New(rand.NewPCG(1, 1))
	now := clock.Now()
	r := reader{pid: 1, begin: now, usageAt: now, at: now, walkedAt: now, walked: &holders.Result{}, uuids: []string{"GPU-a"}}
	held := holders.NewHolder(holders.Root{Kind: holders.RootModule, Name: "__main__"}, holders.Step{Kind: holders.StepAttr, Name: "live", Class: "list", Size: n}, holders.Step{Kind: holders.StepIndex, Class: "Tensor", Size: -1})
	s := &allocator.Snapshot{Backend: allocator.Native, Devices: []allocator.Device{{Exact: true, From: now, To: now}}}
	const segment = 2 << 20
	for at := uint64(0x7d0000000000); len(s.Blocks) < n; at += segment {
		s.Segments = append(s.Segments, allocator.Segment{Address: at, Base: at, Size: segment, Small: true})
		for end := at; end < at+segment; {
			size := min(uint64(dice.IntN(10)+1)<<9, at+segment-end)
			b := allocator.Block{Address: end, Size: size, Requested: size, Small: true, State: allocator.Active}
			s.Blocks = append(s.Blocks, b)
			r.walked.Storages = append(r.walked.Storages, holders.Storage{Address: end, Bytes: size - 100, DeviceType: 1, Holder: held, Container: holders.Container{Address: 1, Class: "list", Entries: n}})
			r.blocks = append(r.blocks, holders.Range{Address: end, Bytes: size})
			s.Devices[0].Counters.Allocated.Current += size
			end += size
		}
		s.Devices[0].Counters.Reserved.Current += segment
	}
	r.gpus = []ledger.GPU{{UUID: "GPU-a", Total: 80 << 30}}
	r.usage = []ledger.Usage{{PID: 1, UUID: "GPU-a", Bytes: s.Devices[0].Counters.Reserved.Current + 300<<20}}
	r.reading = s
	return r
}

func processorTime() int64 {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkBooks makes the books of a process with many tensors and the report of them.
func BenchmarkBooks(b *testing.B) {
	r := manyTensors(100_000)
	before := processorTime()
	b.ReportAllocs()
	for b.Loop() {
		if err := text.WriteExplain(io.Discard, r.books(), nil, nil, report.Options{}, text.Screen{Width: 80}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processorTime()-before)/1e6/float64(b.N), "cpu-ms/op")
}
