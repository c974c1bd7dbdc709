// SPDX-License-Identifier: Apache-2.0

package profile_test

import (
	"bytes"
	"fmt"
	"log"
	"time"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// trainer has the stacks of a program in Python, leaf first.
type trainer struct{}

func (trainer) Stack(id uint64) []callstack.Frame {
	return []callstack.Frame{
		{Function: "cudaMalloc", Mapping: &callstack.Mapping{Path: "/usr/lib/libcudart.so.12"}},
		{Function: "Cache.put", File: "/home/ada/train.py", Line: 40 + int(id), Python: true},
	}
}

// A profile of each of two moments is written and read, and the two are compared by line of code.
func Example() {
	books := ledger.New(ledger.Options{})
	books.Tell(ledger.Process{PID: 42, Comm: "python3"})
	var profiles [2]profile.Profile
	for i := range uint64(2) {
		books.Apply(&ledger.Event{
			Op: ledger.Alloc, Kind: ledger.Device, PID: 42, Time: i + 1, Address: 4096 * (i + 1), Size: 1 << (30 + i), Stack: i + 1, API: "cudaMalloc",
		})
		var file bytes.Buffer
		if err := profile.Write(&file, books.Snapshot(i+1, time.Unix(1_790_000_000, 0)), trainer{}); err != nil {
			log.Fatal(err)
		}
		var err error
		if profiles[i], err = profile.Read(&file); err != nil {
			log.Fatal(err)
		}
	}
	for _, c := range profile.Diff(profiles[0], profiles[1]).Lines {
		fmt.Printf("train.py:%d %s: %s → %s\n", c.Frame.Line, c.Frame.Function, format.SignedBytes(c.Before), format.SignedBytes(c.After))
	}
	// Output:
	// train.py:42 Cache.put: 0 B → 2.00 GiB
	// train.py:41 Cache.put: 1.00 GiB → 1.00 GiB
}
