// SPDX-License-Identifier: Apache-2.0

package export

import (
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

type stackMap map[uint64][]callstack.Frame

func (m stackMap) Stack(id uint64) []callstack.Frame { return m[id] }

const (
	trainStack   = 1
	segmentStack = 2
	ncclStack    = 3
	hostileStack = 4
	pinnedStack  = 5
)

func testStacks() stackMap {
	nccl := &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", Start: 0x1000, Limit: 0x900000}
	c10 := &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/torch/lib/libc10_cuda.so", Start: 0x1000, Limit: 0x900000}
	python := callstack.Frame{Function: "<module>", File: "/home/ada/train.py", Line: 7, Python: true}
	step := callstack.Frame{Function: "Trainer.step", File: "/home/ada/train.py", Line: 42, Python: true}
	return stackMap{
		trainStack:   {{Function: "c10::reportMemoryUsageToProfiler", Mapping: c10, Address: 0x2000}, step, python},
		segmentStack: {{Function: "cudaMalloc"}, {Function: "alloc_block [with T = int; U = long]", Mapping: c10, Address: 0x2100}, step, python},
		ncclStack:    {{Function: "cuMemCreate"}, {Function: "ncclCommInitRank", Mapping: nccl, Address: 0x3000}, {Function: "init", File: "/home/ada/train.py", Line: 12, Python: true}, python},
		hostileStack: {{Function: "evil\x1b[31m;\n\"name\\"}, {Function: "libevil.so+0x10"}, {Mark: true, Function: "[truncated: too deep]"}},
		pinnedStack:  {{Function: "cudaMallocHost"}, python},
	}
}

const (
	mib    = uint64(1) << 20
	second = uint64(time.Second)
	begin  = 1000 * second
	gpu0   = "GPU-1a2b3c4d-0000-0000-0000-000000000000"
	gpu1   = "GPU-5e6f7a8b-0000-0000-0000-000000000000"
)

var wall = time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC)

// told is one input of the books and its time.
type told struct {
	time uint64
	tell func(books ledger.Books)
}

// training returns a session of process 4242 on two GPUs: segments with tensors, NCCL's buffers,
// memory from before the attach. With others, another process shares its first GPU.
func training(others bool) (list []told) {
	event := func(at, pid uint64, op ledger.Op, kind ledger.Kind, space ledger.Space, device int32, address, size, stack uint64, api string) {
		e := ledger.Event{Op: op, Kind: kind, Space: space, PID: uint32(pid), TID: uint32(pid), Device: device, Time: begin + at*second, Address: address, Size: size, Stack: stack, API: api}
		list = append(list, told{e.Time, func(c ledger.Books) { c.Apply(&e) }})
	}
	note := func(at uint64, tell func(c ledger.Books)) { list = append(list, told{begin + at*second, tell}) }
	note(0, func(c ledger.Books) {
		c.Tell(ledger.GPUs{{Index: 0, UUID: gpu0, Name: "H100", Total: 81559 * mib, Used: 3500 * mib}, {Index: 1, UUID: gpu1, Name: "H100", Total: 81559 * mib, Used: 500 * mib}})
		c.Tell(ledger.Process{PID: 4242, Comm: "python3", Exe: "/usr/bin/python3.11", Begin: begin})
		c.Tell(ledger.Devices{PID: 4242, UUIDs: []string{gpu0, gpu1}})
		c.Tell(ledger.UsageReading{Time: begin, Usages: []ledger.Usage{{PID: 4242, UUID: gpu0, Bytes: 700 * mib}, {PID: 4242, UUID: gpu1, Bytes: 300 * mib}}})
	})
	event(1, 4242, ledger.Allocator, ledger.Tensor, ledger.Blocks, 0, 0, 100*mib, 0, "")
	list[len(list)-1].tell = func(c ledger.Books) { // 100 MiB allocated, 240 reserved before
		c.Apply(&ledger.Event{Op: ledger.Allocator, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 4242, TID: 4242, Time: begin + second/2, Size: 100 * mib, Handle: 240 * mib})
	}
	event(1, 4242, ledger.Alloc, ledger.Device, ledger.Addresses, 0, 0x7f_0000_0000, 20*mib, segmentStack, "cudaMalloc")
	event(1, 4242, ledger.Alloc, ledger.Tensor, ledger.Blocks, 0, 0x7f_0000_0000, 4*mib, trainStack, "tensor")
	event(2, 4242, ledger.Alloc, ledger.Tensor, ledger.Blocks, 0, 0x7f_0080_0000, 8*mib, trainStack, "tensor")
	// in an older segment
	event(3, 4242, ledger.Alloc, ledger.Tensor, ledger.Blocks, 0, 0x7e_0000_1000, 3*mib, trainStack, "tensor")
	event(3, 4242, ledger.Alloc, ledger.VMM, ledger.Physical, 1, 77, 64*mib, ncclStack, "cuMemCreate")
	list = append(list, told{begin + 3*second, func(c ledger.Books) {
		c.Apply(&ledger.Event{Op: ledger.Map, PID: 4242, TID: 4242, Time: begin + 3*second, Address: 0x30_0000_0000, Size: 64 * mib, Handle: 77, Stack: ncclStack, API: "cuMemMap"})
	}})
	event(4, 4242, ledger.Alloc, ledger.Device, ledger.Addresses, 0, 0x7d_0000_0000, 12*mib, ncclStack, "cudaMalloc")
	event(4, 4242, ledger.Alloc, ledger.Pinned, ledger.Addresses, 0, 0x66_0000_0000, 32*mib, pinnedStack, "cudaMallocHost")
	event(5, 4242, ledger.Alloc, ledger.Array, ledger.Arrays, 0, 0x1234, 5*mib, hostileStack, "cudaMallocArray")
	event(6, 4242, ledger.Free, ledger.Tensor, ledger.Blocks, 0, 0x7f_0000_0000, 0, 0, "")
	event(7, 4242, ledger.AllocFailed, ledger.Device, ledger.Addresses, 0, 0, 80<<30, trainStack, "cudaMalloc")
	list[len(list)-1].tell = func(c ledger.Books) {
		c.Apply(&ledger.Event{Op: ledger.AllocFailed, Kind: ledger.Device, PID: 4242, TID: 4242, Time: begin + 7*second, Size: 80 << 30, Result: 2, Stack: trainStack, API: "cudaMalloc"})
	}
	if others {
		note(7, func(c ledger.Books) {
			c.Tell(ledger.Process{PID: 5151, Comm: "in\x1bfer;", Begin: begin + 7*second})
			c.Tell(ledger.Devices{PID: 5151, UUIDs: []string{gpu0}})
		})
		event(8, 5151, ledger.Alloc, ledger.Device, ledger.Addresses, 0, 0x7f_0000_0000, 50*mib, hostileStack, "cudaMalloc")
	}
	note(9, func(c ledger.Books) {
		// of 4, 8 and 3 MiB, and one of 1 MiB that is not in the sample
		class := func(live, freed uint64) []ledger.ClassTotals {
			list := make([]ledger.ClassTotals, ledger.SizeClasses)
			for _, size := range []uint64{4 * mib, 8 * mib, 3 * mib, mib} {
				list[ledger.SizeClass(size)] = ledger.ClassTotals{Allocs: 1, AllocBytes: size}
			}
			list[ledger.SizeClass(4*mib)].Frees, list[ledger.SizeClass(4*mib)].FreeBytes = 1, 4*mib
			return list
		}
		c.Tell(ledger.TensorReading{Time: begin + 9*second, Totals: []ledger.TensorTotals{{PID: 4242, Device: 0, Allocated: 112 * mib, Reserved: 260 * mib, Reported: begin + 8*second, Classes: class(0, 0)}}})
		c.Tell(ledger.BlockList{PID: 4242, Blocks: []ledger.Block{
			{Address: 0x7f_0080_0000, Size: 8 * mib}, {Address: 0x7e_0000_1000, Size: 3 * mib}, {Address: 0x7f_0010_0000, Size: mib},
		}})

		usages := []ledger.Usage{{PID: 4242, UUID: gpu0, Bytes: 735 * mib}, {PID: 4242, UUID: gpu1, Bytes: 365 * mib}}
		if others {
			usages = append(usages, ledger.Usage{PID: 5151, UUID: gpu0, Bytes: 350 * mib})
		}
		c.Tell(ledger.UsageReading{Time: begin + 9*second, Usages: usages})
	})
	return list
}

// play feeds a collector the session up to a time.
func play(list []told, until uint64, o CollectorOptions) *Collector {
	c := NewCollector(ledger.New(ledger.Options{Begin: begin, Host: "gpu-box-1"}), o)
	for _, x := range list {
		if x.time <= until {
			x.tell(c)
		}
	}
	c.Tell(ledger.Segments{segmentStack}) // as the caller determines by the stacks
	return c
}

func snapshot(c *Collector, at uint64) *ledger.Snapshot { return c.Snapshot(at, wall) }
