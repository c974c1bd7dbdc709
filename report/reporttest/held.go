// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"maps"
	"slices"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// HeldStacks are the stacks of Held: those of TorchStacks, and 11 a C++ server.
func HeldStacks() StackMap {
	stacks := maps.Clone(TorchStacks())
	stacks[11] = Stacks()[2]
	return stacks
}

// Held is a training job of which 58 GiB are older than the attach, with a list that grows by 80
// MiB a second, and a C++ server. Of both, memory was walked at 1 s and at 58 s; the server has no
// Python. At 59 s, 256 MiB from before the attach are freed, of which no holder was found. The
// session ends at 60 s.
func Held() *ledger.Snapshot {
	l := ledger.New(ledger.Options{Begin: 1000 * Second, Host: "gpu-box-1"})
	PlayHeld(l)
	return l.Snapshot(1060*Second, time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC))
}

// PlayHeld tells books the session of Held, which begins at 1000 s.
func PlayHeld(books ledger.Books) {
	h := heldJob{books: books, begin: 1000 * Second, older: 58 * GiB, reserved: 60 * GiB}
	h.start()
	for tenth := uint64(1); tenth < 600; tenth++ {
		h.step(tenth)
		switch tenth {
		case 10, 580:
			h.walk(tenth)
		case 590:
			h.freeOlder(256 * MiB)
		}
	}
	h.usage(60, 67*GiB+524*MiB, 2500*MiB)
}

const (
	heldPID, heldServer  = 4242, 4300
	heldBlocks           = uint64(0x7f0000000000) // addresses since the attach
	heldBuffer           = uint64(0x7e0000000000)
	heldRecent           = 20 // of the first blocks, kept by a deque
	heldBlock, heldGrads = 8 * MiB, 64 * MiB
)

type heldJob struct {
	books           ledger.Books
	begin, now      uint64
	older, reserved uint64
	blocks          []ledger.Block // allocated since the attach
}

func (h *heldJob) apply(e ledger.Event) {
	e.PID = max(e.PID, heldPID)
	e.TID, e.Time = e.PID, h.now
	h.books.Apply(&e)
}

// live returns the bytes allocated since the attach.
func (h *heldJob) live() (sum uint64) {
	for _, b := range h.blocks {
		sum += b.Size
	}
	return sum
}

// told completes an event of the allocator.
func (h *heldJob) told(e ledger.Event) ledger.Event {
	e.Kind, e.Space, e.Told = ledger.Tensor, ledger.Blocks, ledger.ToldAllocated|ledger.ToldLive
	e.Allocated, e.Live, e.Reserved = h.older+h.live(), h.live(), h.reserved
	return e
}

func (h *heldJob) usage(second, job, server uint64) {
	h.books.Tell(ledger.UsageReading{Time: h.begin + second*Second, Usages: []ledger.Usage{
		{PID: heldPID, UUID: OOMGPU, Bytes: job}, {PID: heldServer, UUID: OOMGPU, Bytes: server},
	}})
}

func (h *heldJob) start() {
	h.now = h.begin
	h.books.Tell(ledger.GPUs{{UUID: OOMGPU, Name: "NVIDIA H100 80GB HBM3", Total: 81559 * MiB, Used: 72 * GiB}})
	h.books.Tell(ledger.Process{PID: heldPID, Comm: "python3", Exe: "/usr/bin/python3.11", Begin: h.begin})
	h.books.Tell(ledger.Devices{PID: heldPID, UUIDs: []string{OOMGPU}})
	h.books.Tell(ledger.Process{PID: heldServer, Comm: "infer", Exe: "/srv/infer/bin/infer", Begin: h.begin})
	h.books.Tell(ledger.Devices{PID: heldServer, UUIDs: []string{OOMGPU}})
	h.usage(0, h.reserved+520*MiB, 400*MiB)
	h.now += Second / 100
	h.apply(ledger.Event{Op: ledger.Allocator, Kind: ledger.Tensor, Space: ledger.Blocks, Size: h.older, Handle: h.reserved})
	h.apply(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Address: heldBlocks, Size: 6 * GiB, Stack: 4, API: "cudaMalloc"})
	h.apply(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Address: heldBuffer, Size: GiB, Stack: 6, API: "cuMemAlloc_v2"})
	h.apply(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: heldServer, Address: 0xa0, Size: 2 * GiB, Stack: 11, API: "cuMemAlloc_v2"})
	h.books.Tell(ledger.Segments{4})
	h.reserved += 6 * GiB
	for range 4 { // of the backward pass, at the end of the segment
		h.alloc(heldBlocks+6*GiB-uint64(len(h.blocks)+1)*heldGrads, heldGrads, 2)
	}
}

func (h *heldJob) alloc(address, size, stack uint64) {
	h.blocks = append(h.blocks, ledger.Block{Address: address, Size: size})
	h.apply(h.told(ledger.Event{Op: ledger.Alloc, Address: address, Size: size, Stack: stack, API: "torch"}))
}

// step allocates what the list keeps.
func (h *heldJob) step(tenth uint64) {
	h.now = h.begin + tenth*Second/10
	h.alloc(heldBlocks+tenth*heldBlock, heldBlock, 1)
}

// freeOlder frees memory from before the attach.
func (h *heldJob) freeOlder(bytes uint64) {
	h.older -= bytes
	h.apply(h.told(ledger.Event{Op: ledger.Totals}))
}

// walk adds the walks of both processes.
func (h *heldJob) walk(tenth uint64) {
	w := heldWalk{Walk: ledger.Walk{PID: heldPID, Time: h.now, Problems: []string{"containers changed while they were read: 36"}}}
	main := func(path string, class string, frames ...string) ledger.Holder {
		return ledger.Holder{Path: path, Class: class, Frames: slices.Concat([]string{"__main__"}, frames), Found: true, Entries: -1, Retention: retention.Read(0, path)}
	}
	weight := main("model.layers.*.weight", "Linear.weight", "model", "layers.*", "weight")
	weight.Also = []string{"optimizer.param_groups[*]['params'][*]"}
	w.older(weight, 56, 256*MiB)
	w.older(main("model.layers.*.weight.grad", "Linear.weight.grad", "model", "layers.*", "weight", "grad"), 56, 256*MiB)
	for _, name := range []string{"exp_avg", "exp_avg_sq"} {
		state := main("optimizer.state[*]['"+name+"']", "Adam.state[*]['"+name+"']", "optimizer", "state[*]", "['"+name+"']")
		state.Container, state.Containers, state.Entries = "dict", 56, 168
		w.older(state, 56, 256*MiB)
	}
	history := ledger.Holder{
		Path: `local "trainer".history[*] of main() (train.py:7)`, Class: "Trainer.history[*]", Frames: []string{"main() (train.py:7)", "trainer", "history[*]"},
		Container: "list", Containers: 1, Entries: 192 + max(int(tenth)-heldRecent, 0), Found: true, Retention: retention.Known,
	}
	w.older(history, 192, heldBlock)
	kept := w.older(main("metrics['recent'][*]", "", "metrics", "['recent'][*]"), 0, 0)
	w.Holders[kept].Container, w.Holders[kept].Containers, w.Holders[kept].Entries = "deque", 1, min(heldRecent, int(tenth))
	step := w.older(ledger.Holder{Path: "in use by the running step", Frames: []string{"in use by the running step"}, Entries: -1, Retention: retention.Known}, 0, 0)
	for i, b := range h.blocks {
		holder := kept - 1
		switch {
		case b.Size == heldGrads:
			holder = step
		case i < heldRecent+4:
			holder = kept
		}
		w.Storages = append(w.Storages, ledger.Storage{Address: b.Address, Bytes: b.Size, Block: b.Size, Holder: holder, InMotion: b.Size == heldGrads})
	}
	buffer := w.older(main("pool.buffer", "Pool.buffer", "pool", "buffer"), 0, 0)
	w.Storages = append(w.Storages, ledger.Storage{Address: heldBuffer, Bytes: GiB, Holder: buffer, Allocation: true})
	h.books.Tell(w.Walk)
	h.books.Tell(ledger.Walk{PID: heldServer, Time: h.now, Failure: ledger.WalkNoPython})
}

// heldWalk is a walk under construction.
type heldWalk struct {
	ledger.Walk
	next uint64
}

// older adds a holder of storages from before the attach, and returns its index.
func (w *heldWalk) older(holder ledger.Holder, storages int, bytes uint64) uint32 {
	index := uint32(len(w.Holders))
	w.Holders = append(w.Holders, holder)
	for range storages {
		w.Storages = append(w.Storages, ledger.Storage{Address: 0x7d0000000000 + w.next, Bytes: bytes, Holder: index})
		w.next += bytes
	}
	return index
}

// NamedWalks are walks with these names: of process 0 with a holder of 2 MiB, half of it from
// before the attach, and an earlier one of it in vain.
func NamedWalks(path, frame, container string) []ledger.Walked {
	held := ledger.Held{
		Holder: ledger.Holder{Path: path, Frames: []string{frame, path, container}, Class: container, Also: []string{frame}, Container: container, Containers: 1, Entries: 7, Found: true, Retention: retention.Read(0, path)},
		Bytes:  2 * MiB, Older: MiB, Storages: 2, InMotion: 1,
	}
	return []ledger.Walked{{Time: Second, Failure: frame}, {
		Time: 2 * Second, Problems: []string{path}, Held: []ledger.Held{held},
		Allocators: []ledger.WalkTotals{{Allocated: 5 * MiB, Held: 2 * MiB, Older: 4 * MiB, HeldOlder: MiB, Excess: 1}},
		Left:       []uint64{MiB},
	}}
}
