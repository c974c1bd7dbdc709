// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"maps"
	"slices"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// StuckStacks are the stacks of Stuck: those of TorchStacks, 12 a metric, 13 a batch, 14 to 19
// layers.
func StuckStacks() StackMap {
	stacks := maps.Clone(TorchStacks())
	add := func(id uint64, function, file string, line int) {
		stacks[id] = []callstack.Frame{
			Native("c10::reportMemoryUsageToProfiler(void*, long, unsigned long, unsigned long, c10::Device)", C10, 0x7010),
			Native("at::native::clone", torchCUDA, 0x4400), Script(function, "/home/ada/llm/"+file, line), Script("<module>", "/home/ada/llm/train.py", 7),
		}
	}
	add(12, "Metrics.update", "metrics.py", 31)
	add(13, "Loader.next", "data.py", 88)
	for i := range uint64(6) {
		add(14+i, "Block.forward", "model.py", 40+int(i))
	}
	return stacks
}

// Stuck is a job whose metrics keep a tensor of 2 MiB in each of 240 segments of 20 MiB. Twenty
// more segments have a batch beside it, 30 only batches, 10 tensors of six layers, 4 are full and
// 60 empty. Small tensors that were not sampled lie in 40 segments of 2 MiB. Four GiB of cache are
// older than the attach.
func Stuck() *ledger.Snapshot {
	l := ledger.New(ledger.Options{Begin: 1000 * Second, Host: "gpu-box-1"})
	PlayStuck(l)
	s := l.Snapshot(1060*Second, time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC))
	l.AddStuck(s)
	return s
}

// PlayStuck tells books the session of Stuck, which begins at 1000 s.
func PlayStuck(books ledger.Books) {
	j := stuckJob{books: books, now: 1000 * Second, next: 0x7f0000000000}
	books.Tell(ledger.GPUs{{UUID: OOMGPU, Name: "NVIDIA H100 80GB HBM3", Total: 81559 * MiB, Used: 16 * GiB}})
	books.Tell(ledger.Process{PID: stuckPID, Comm: "python3", Exe: "/usr/bin/python3.11", Begin: j.now})
	books.Tell(ledger.Devices{PID: stuckPID, UUIDs: []string{OOMGPU}})
	books.Tell(ledger.UsageReading{Time: j.now, Usages: []ledger.Usage{{PID: stuckPID, UUID: OOMGPU, Bytes: stuckReserved + 520*MiB}}})
	books.Tell(ledger.Sampling(slices.Repeat([]float64{0.01}, ledger.SizeClass(4096)+1)))
	books.Tell(ledger.SampleRate{Mean: MiB, Limit: 4000})
	j.apply(ledger.Event{Op: ledger.Allocator, Kind: ledger.Tensor, Space: ledger.Blocks, Size: stuckOlder, Handle: stuckReserved})
	segments := func(n int, size uint64, stacks ...uint64) {
		for range n {
			j.segment(size, stacks)
		}
	}
	segments(240, 20*MiB, 12)
	segments(20, 20*MiB, 12, 13)
	segments(30, 20*MiB, 13)
	segments(10, 20*MiB, 14, 15, 16, 17, 18, 19)
	segments(4, 2*MiB, 3)
	segments(60, 20*MiB)
	segments(40, 2*MiB, 0)
	books.Tell(ledger.Segments{4})
	j.walk()
	j.end()
}

const (
	stuckPID      = 4242
	stuckOlder    = 6 * GiB
	stuckReserved = 10 * GiB
)

type stuckJob struct {
	books          ledger.Books
	now, next      uint64
	live, reserved uint64 // since the attach
	blocks         []ledger.Block
	storages       []ledger.Storage
	classes        [ledger.SizeClasses]ledger.ClassTotals
}

func (j *stuckJob) apply(e ledger.Event) {
	j.now += Second / 100
	e.PID, e.TID, e.Time = stuckPID, stuckPID, j.now
	j.books.Apply(&e)
}

// segment allocates a segment with a tensor of each stack, 2 MiB or, of stack 0, some small ones
// that are not in the sample.
func (j *stuckJob) segment(size uint64, stacks []uint64) {
	address := j.next
	j.next += 2 * size
	j.reserved += size
	j.apply(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Address: address, Size: size, Stack: 4, API: "cudaMalloc"})
	for i, stack := range stacks {
		n, bytes := 1, 2*MiB
		if stack == 0 {
			n, bytes = 3, 4096
		}
		for k := range n {
			j.block(address+uint64(i+k)*bytes, bytes, stack)
		}
	}
}

func (j *stuckJob) block(address, size, stack uint64) {
	j.live += size
	c := &j.classes[ledger.SizeClass(size)]
	c.Allocs++
	c.AllocBytes += size
	j.blocks = append(j.blocks, ledger.Block{Address: address, Size: size})
	holder := map[uint64]uint32{12: 1, 0: 2}[stack]
	if holder != 0 {
		j.storages = append(j.storages, ledger.Storage{Address: address, Bytes: size, Block: size, Holder: holder - 1})
	}
	if stack != 0 {
		j.apply(ledger.Event{Op: ledger.Alloc, Kind: ledger.Tensor, Space: ledger.Blocks, Address: address, Size: size, Stack: stack, API: "torch"})
	}
}

func (j *stuckJob) walk() {
	list := func(path string, entries int) ledger.Holder {
		return ledger.Holder{Path: path, Frames: []string{"__main__", path}, Container: "list", Containers: 1, Entries: entries, Found: true, Retention: retention.Read(0, path)}
	}
	j.books.Tell(ledger.Walk{PID: stuckPID, Time: j.now, Holders: []ledger.Holder{list("metrics.history[*]", 260), list("losses[*]", 120)}, Storages: j.storages})
}

// end tells the totals as of the end of the session.
func (j *stuckJob) end() {
	allocated, reserved := stuckOlder+j.live, stuckReserved+j.reserved
	j.now = 1060*Second - Second/10
	j.books.Tell(ledger.TensorReading{Time: j.now, Totals: []ledger.TensorTotals{{
		PID: stuckPID, Reported: j.now, Allocated: allocated, Reserved: reserved, Live: j.live, Peak: allocated + 4*GiB, PeakTime: 1030 * Second, Classes: j.classes[:],
	}}})
	j.books.Tell(ledger.UsageReading{Time: j.now, Usages: []ledger.Usage{{PID: stuckPID, UUID: OOMGPU, Bytes: reserved + 520*MiB}}})
	j.books.Tell(ledger.BlockList{PID: stuckPID, Blocks: j.blocks})
}
