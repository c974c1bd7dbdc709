// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

var big = flag.String("big", "", "write a capture of 10 million events and 10,000 sites to this file, for scripts/bench.sh")

const bigEvents, bigSites = 10_000_000, 10_000

// bigStacks returns stacks of 40 frames, most of which are shared.
type bigStacks struct{ torch *callstack.Mapping }

func (b bigStacks) Stack(id uint64) []callstack.Frame {
	list := make([]callstack.Frame, 0, 40)
	for depth := range uint64(25) {
		k := id>>(depth/4)*31 + depth
		list = append(list, callstack.Frame{Function: fmt.Sprintf("at::native::kernel_%d(at::Tensor const&)", k%3000), Address: 0x1000 + k%3000*16, Mapping: b.torch})
	}
	for depth := range uint64(15) {
		k := id >> depth
		list = append(list, callstack.Frame{Function: fmt.Sprintf("Block%d.forward", k%400), File: fmt.Sprintf("/srv/model/layer_%d.py", k%40), Line: int(10 + k%300), Python: true})
	}
	return list
}

func TestWriteBigCapture(t *testing.T) {
	if *big == "" {
		t.Skip("only with -big")
	}
	f, err := os.OpenFile(*big, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	now := &clock{now: sessionBegin}
	w, err := NewWriter(f, Options{Host: "bench", Interval: time.Hour, Clock: now.read})
	if err != nil {
		t.Fatal(err)
	}
	w.SetStacks(bigStacks{torch: &callstack.Mapping{Path: "/opt/torch/lib/libtorch_cuda.so"}})
	books := both{ledger.New(ledger.Options{Begin: sessionBegin}), w}
	w.SetCheckpoints(books.Checkpoint)
	books.Tell(ledger.Process{PID: 4242, Comm: "python3", Exe: "/usr/bin/python3", Begin: sessionBegin, Devices: []string{"GPU-a"}})
	books.Tell(ledger.GPUs{{UUID: "GPU-a", Name: "bench", Total: 80 << 30}})
	books.Tell(ledger.Begin{Time: sessionBegin})
	jobs := newWorkload()
	var e ledger.Event
	for i := range bigEvents {
		jobs.event(&e)
		if e.Op == ledger.Alloc { // from 10,000 sites, each with its size, instead of some hundred
			e.Stack = (1 + e.Size>>9*bigSites/250 + uint64(i)%(bigSites/250)) * 0x9e3779b97f4a7c15
		}
		now.set(e.Time)
		books.Apply(&e)
		if i%1_000_000 == 0 {
			books.Tell(ledger.UsageReading{Time: e.Time, Usages: []ledger.Usage{{PID: 4242, UUID: "GPU-a", Bytes: 2 << 30}}})
		}
		for i%batchEvents == 0 && len(w.queue) > maxQueue/2 {
			time.Sleep(time.Millisecond)
		}
	}
	if err := w.End(books.Snapshot(e.Time, time.Unix(1700000000, 0))); err != nil {
		t.Fatal(err)
	}
}
