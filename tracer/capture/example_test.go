// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// stacks returns the frames of stack 1.
type stacks struct{}

func (stacks) Stack(id uint64) []callstack.Frame {
	if id != 1 {
		return nil
	}
	return []callstack.Frame{{Function: "cudaMalloc"}, {Function: "Trainer.step", File: "train.py", Line: 42}}
}

// A Writer takes the same inputs as a ledger. A Reader returns snapshots of any moment.
func Example() {
	dir, err := os.MkdirTemp("", "capture")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "run.vram")
	if err := write(path); err != nil {
		fmt.Println(err)
		return
	}
	r, err := capture.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	for _, seconds := range []uint64{2, 4} {
		s, err := r.Snapshot(seconds * 1e9)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, site := range s.Sites {
			caller := r.Stack(site.Stack)[1]
			fmt.Printf("%d s: %d bytes live from %s:%d\n", seconds, site.LiveBytes, caller.File, caller.Line)
		}
	}
	// Output:
	// 2 s: 4096 bytes live from train.py:42
	// 4 s: 12288 bytes live from train.py:42
}

// write creates a capture of a process that allocates twice.
func write(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	now := uint64(1e9)
	w, err := capture.NewWriter(file, capture.Options{Host: "node1", Clock: func() uint64 { return now }})
	if err != nil {
		return err
	}
	w.SetStacks(stacks{})
	w.Tell(ledger.Begin{Time: now})
	w.Tell(ledger.Process{PID: 4242, Comm: "python3"})
	for i, size := range []uint64{4096, 8192} {
		w.Apply(&ledger.Event{
			Op: ledger.Alloc, Kind: ledger.Device, PID: 4242, TID: 4242, Time: uint64(2+i) * 1e9,
			Address: 0x7f0000 + uint64(i)*0x10000, Size: size, Stack: 1, API: "cudaMalloc",
		})
	}
	return w.End(nil)
}
