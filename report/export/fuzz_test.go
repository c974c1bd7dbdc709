// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// FuzzNames writes a process with fuzzed names in other tools' formats. Their strict readers get
// the same numbers as with plain names.
func FuzzNames(f *testing.F) {
	f.Add("step", "/home/ada/train.py", "python3", "cudaMalloc")
	f.Add("a;b 7\n\x1b[31m", "/tmp/\n;\u202ex.py", "\"},{", "]\\\x00")
	f.Add(strings.Repeat("很", 3000), " ", "\xff\xfe", ";")
	f.Fuzz(func(t *testing.T, function, file, comm, api string) {
		m := &callstack.Mapping{Path: file, BuildID: comm, Start: 1, Limit: 1 << 20}
		st := stackMap{1: {{Function: api, SystemName: api, Mapping: m, Address: 4}, {Function: function, File: file, Line: 3, Python: true}, {Function: comm, Mapping: m, Address: 8}}}
		c := NewCollector(ledger.New(ledger.Options{Begin: begin, Host: comm}), CollectorOptions{})
		c.Tell(ledger.GPUs{{UUID: gpu0, Name: function, Total: 80 << 30, Used: 8 * mib}})
		c.Tell(ledger.Process{PID: 7, Comm: comm, Exe: file, Begin: begin, Workload: ledger.Workload{Rank: "1", Job: api}})
		c.Tell(ledger.Devices{PID: 7, UUIDs: []string{gpu0}})
		c.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, TID: 7, Time: begin + 1, Address: 0x7000, Size: 5 * mib, Stack: 1, API: api})
		c.Apply(&ledger.Event{Op: ledger.Allocator, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 7, TID: 7, Time: begin + 2, Size: mib, Handle: 2 * mib})
		holder := ledger.Holder{Path: function, Frames: []string{file, comm, api}, Found: true}
		c.Tell(ledger.Walk{PID: 7, Time: begin + 3, Holders: []ledger.Holder{holder}, Storages: []ledger.Storage{
			{Address: 0x7000, Bytes: 5 * mib, Allocation: true}, {Address: 0x9000, Bytes: mib / 2},
		}})
		at := begin + second
		s := snapshot(c, at)

		var text bytes.Buffer
		if err := Folded(&text, s, st, FoldedOptions{}); err != nil {
			t.Fatal(err)
		}
		if sum := readFolded(t, text.String()); sum < int64(5*mib) {
			t.Errorf("folded stacks have %d bytes", sum)
		}
		var trace bytes.Buffer
		line := &timeline.Timeline{
			Times: []uint64{begin, at}, Processes: s.Processes, GPUs: s.GPUs,
			Marks: []timeline.Mark{{Time: begin + 2, Kind: timeline.Large, Size: 5 * mib, Stack: 1, API: api}},
			Rows: []timeline.Row{{UUID: gpu0, Tensors: []uint64{0, 0}, Cached: []uint64{0, 0}, Driver: []uint64{0, 5 * mib}, Rounding: []uint64{0, 0}, Before: []uint64{0, 0},
				Unexplained: []uint64{0, 0}, Usage: []uint64{0, 5 * mib}, Host: []uint64{0, 0}}},
		}
		if err := Chrome(&trace, line, s, st); err != nil {
			t.Fatal(err)
		}
		checkChrome(t, trace.Bytes())
		var torch bytes.Buffer
		if err := Torch(&torch, c, s, st); err != nil {
			t.Fatal(err)
		}
		if _, err := unpickle(torch.Bytes()); err != nil {
			t.Errorf("the snapshot cannot be read: %v", err)
		}
		if text.Len() > 64<<10 || trace.Len() > 256<<10 || torch.Len() > 256<<10 {
			t.Errorf("%d, %d and %d bytes of one allocation", text.Len(), trace.Len(), torch.Len())
		}
	})
}
