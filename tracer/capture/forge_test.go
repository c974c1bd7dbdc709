// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// forger writes captures with valid checksums and forged contents.
type forger struct {
	file  *memory
	disk  *disk
	coder *eventCoder
	m     wire.Inputs
	size  int // of the inputs in m
	now   uint64
}

func newForger(tb testing.TB) *forger {
	f := &forger{file: &memory{}, coder: newEventCoder(), now: 1e9}
	var err error
	if f.disk, err = newDisk(f.file, &wire.Head{Time: f.now, Host: []byte("h")}); err != nil {
		tb.Fatal(err)
	}
	return f
}

// event adds an event one nanosecond after the previous one, unless it has a time.
func (f *forger) event(e ledger.Event) {
	f.now++
	if e.Time == 0 {
		e.Time = f.now
	}
	if e.API == "" {
		e.API = "a"
	}
	f.coder.add(&f.m, &e)
	if f.m.Events == 256<<10 {
		f.flush()
	}
}

func (f *forger) input(in *wire.Input) {
	f.now++
	in.Time, in.Position = f.now, f.m.Events
	f.m.Input = append(f.m.Input, in)
	if f.size += size(in); f.size > 3<<20 || len(f.m.Input) == 50_000 {
		f.flush()
	}
}

func (f *forger) flush() {
	if err := f.disk.write(frame{kind: inputsFrame, events: f.m.Events, first: f.disk.last, last: max(f.now, f.disk.last)}, &f.m); err != nil {
		panic(err)
	}
	truncate(&f.m)
	f.coder.reset()
	f.size = 0
}

func (f *forger) other(kind frameKind, m proto.Message) {
	if err := f.disk.write(frame{kind: kind, first: f.disk.last, last: f.disk.last}, m); err != nil {
		panic(err)
	}
}

func (f *forger) bytes() []byte {
	f.flush()
	return f.file.b
}

func (f *forger) usage(m *wire.Usages) { f.input(&wire.Input{What: &wire.Input_Usages{Usages: m}}) }

// names names stacks of the given depth, all with the same line.
func (f *forger) names(from, n, depth int) {
	m := &wire.Stacks{
		Text: [][]byte{{}, []byte(strings.Repeat("f", 200)), []byte("/x.py")}, Function: []uint32{1}, SystemName: []uint32{0}, File: []uint32{2}, Number: []int32{3}, Start: []int32{0},
		Address: []int64{0}, Mapping: []uint32{0}, Flags: []uint32{flagPython},
	}
	for i := range n {
		m.Id, m.Depth = append(m.Id, uint64(from+i)), append(m.Depth, uint32(depth))
		m.Line = append(m.Line, make([]uint32, depth)...)
		if len(m.Line) > 4<<20 || len(m.Id) == 200_000 || i == n-1 {
			f.other(stacksFrame, m)
			m = &wire.Stacks{FirstText: 3, FirstLine: 1}
		}
	}
}

func (f *forger) alloc(pid uint32, device int32, stack uint64) {
	f.event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: pid, TID: 1, Device: device, Address: f.now << 9, Size: 512, Stack: stack})
}

// tensor adds an event with totals if some are not 0.
func (f *forger) tensor(op ledger.Op, pid uint32, device int32, stack, total uint64) {
	e := ledger.Event{Op: op, Kind: ledger.Tensor, Space: ledger.Blocks, PID: pid, TID: 1, Device: device, Address: f.now << 9, Size: 512, Stack: stack}
	if total != 0 {
		e.Told, e.Allocated, e.Reserved = ledger.ToldAllocated, total, total
	}
	f.event(e)
}

func uuidOf(i int) []byte { return fmt.Appendf(nil, "GPU-%d", i) }

// openingForger writes an opening.
type openingForger struct{ f *forger }

func (o openingForger) Apply(e *ledger.Event) { o.f.event(*e) }
func (o openingForger) Tell(in ledger.Input)  { o.f.input(inputOf(in)) }

// forgeries write what costs a reader most per byte, each n times.
var forgeries = map[string]func(f *forger, n int){
	"deep stacks of one line": func(f *forger, n int) {
		f.names(1, n/64, 4096)
		for i := range n {
			f.alloc(7, 0, uint64(1+i%max(n/64, 1)))
		}
	},
	"one deep stack of many sites": func(f *forger, n int) {
		f.names(1, 1, 4096)
		for i := range n {
			f.event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Tensor, Space: ledger.Blocks, PID: uint32(1 + i>>7), Device: int32(i & 127), Address: f.now << 9, Size: 512, Stack: 1})
		}
	},
	"an opening": func(f *forger, n int) {
		l := ledger.New(ledger.Options{Begin: 1})
		for i := range uint64(n) {
			l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Kind(1 + i%9), PID: uint32(1 + i%64), Time: i, Address: i << 9, Size: 512, Stack: i, API: "a", Device: ledger.UnknownDevice, TID: uint32(i)})
			l.Apply(&ledger.Event{Op: ledger.Free, PID: uint32(1 + i%64), TID: uint32(i), Time: i, Address: i<<9 - 100<<9})
			l.Apply(&ledger.Event{Op: ledger.ObjectCreate, Kind: ledger.Module, PID: uint32(1 + i%64), Time: i, Address: i + 1, Stack: i})
		}
		l.Opening(openingForger{f})
	},
	"warnings at the end": func(f *forger, n int) {
		f.flush()
		m := &wire.End{Time: f.now}
		for i := range min(n, 390_000) {
			m.Warning = append(m.Warning, fmt.Appendf(nil, "%x", i))
		}
		f.other(endFrame, m)
	},
	"warnings": func(f *forger, n int) {
		for i := range n {
			f.input(&wire.Input{What: &wire.Input_Warning{Warning: fmt.Appendf(nil, "%x", i)}})
		}
	},
	"long texts": func(f *forger, n int) {
		text := strings.Repeat("x", 1<<20)
		f.names(1, 1, 100)
		for i := range n / 64 {
			f.event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: uint32(i + 1), Address: f.now, Size: 512, API: text, Stack: 1})
			f.input(&wire.Input{What: &wire.Input_Process{Process: &wire.Process{Pid: uint32(i + 1), Comm: []byte(text), Exe: []byte(text)}}})
		}
	},
	"GPUs and processes on them": func(f *forger, n int) {
		n = min(n, 60_000)
		gpus, usages := &wire.GPUs{}, &wire.Usages{Time: f.now}
		for i := range n {
			gpus.Gpu = append(gpus.Gpu, &wire.GPU{Index: int32(i), Uuid: uuidOf(i), Total: 1})
			usages.Usage = append(usages.Usage, &wire.Usage{Pid: 7, Uuid: uuidOf(i), Bytes: 1})
		}
		f.alloc(7, 0, 1)
		f.input(&wire.Input{What: &wire.Input_Gpus{Gpus: gpus}})
		for range 3 {
			f.flush()
			f.usage(usages)
		}
	},
	"a GPU of each process": func(f *forger, n int) {
		usages := &wire.Usages{Time: f.now}
		for i := range min(n, 100_000) {
			f.alloc(uint32(i+1), 0, 1)
			usages.Usage = append(usages.Usage, &wire.Usage{Pid: uint32(i + 1), Uuid: []byte("G"), Bytes: 4096})
		}
		for range 3 {
			f.flush()
			f.usage(usages)
		}
	},
	"readings of processes": func(f *forger, n int) {
		for i := range n / 2 {
			f.alloc(uint32(i+1), 0, 1)
		}
		for range n / 2 {
			f.input(&wire.Input{What: &wire.Input_OpenUsage{OpenUsage: f.now}})
			f.usage(&wire.Usages{Time: f.now})
		}
	},
	"ordinals": func(f *forger, n int) {
		m := &wire.Devices{Pid: 7}
		for i := range n {
			m.Uuid = append(m.Uuid, fmt.Appendf(nil, "%x", i))
		}
		f.alloc(7, 0, 1)
		f.input(&wire.Input{What: &wire.Input_Devices{Devices: m}})
		f.flush()
		for range n {
			f.event(ledger.Event{Op: ledger.ContextRelease, PID: 7, Device: ledger.UnknownDevice})
		}
	},
	"lives of one pid": func(f *forger, n int) {
		for range n / 3 {
			f.alloc(7, 0, 1)
			f.event(ledger.Event{Op: ledger.Exit, PID: 7})
		}
		for range n / 3 {
			f.event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Address: f.now, Size: 1, Time: 1})
		}
	},
	"processes that end": func(f *forger, n int) {
		for i := range n / 2 {
			f.alloc(uint32(i+1), 0, uint64(i))
			f.event(ledger.Event{Op: ledger.PoolCreate, PID: uint32(i + 1), Handle: 5, Device: 0})
			f.event(ledger.Event{Op: ledger.Exit, PID: uint32(i + 1), Time: f.now + 1<<40})
		}
		for range n / 2 {
			f.event(ledger.Event{Op: ledger.Exit, PID: 1<<30 + uint32(f.now&0xffff), Time: f.now})
			f.now += 6e9
			f.alloc(1<<30+uint32(f.now&0xffff), 0, 1)
		}
	},
	"contexts that end": func(f *forger, n int) {
		for i := range n / 2 {
			f.alloc(7, 0, uint64(i))
			f.event(ledger.Event{Op: ledger.ObjectCreate, Kind: ledger.Module, PID: 7, Address: uint64(i + 1), Stack: uint64(i), Context: 3})
		}
		for range n / 2 {
			f.event(ledger.Event{Op: ledger.ContextDestroy, PID: 7, Context: 9})
		}
	},
	"lists of blocks": func(f *forger, n int) {
		for range n / 2 {
			f.alloc(7, 0, 1)
		}
		for range n / 2 {
			f.input(&wire.Input{What: &wire.Input_Blocks{Blocks: &wire.Blocks{Pid: 7, Last: true}}})
		}
	},
	"segments": func(f *forger, n int) {
		for i := range n / 2 {
			f.alloc(7, 0, uint64(i))
		}
		for range n / 2 {
			f.input(&wire.Input{What: &wire.Input_Segments{Segments: &wire.Segments{}}})
		}
	},
	"times that fall": func(f *forger, n int) {
		for i := range n {
			f.event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Address: f.now << 9, Size: 1, Stack: 1, Time: 1e15 - uint64(i)})
		}
	},
	"ranges that sleep": func(f *forger, n int) {
		for i := range n {
			f.event(ledger.Event{Op: ledger.Unmap, PID: 7, Address: 1<<40 - uint64(i)<<20, Size: 1 << 10})
		}
	},
	"allocators": func(f *forger, n int) {
		for i := range n / 4 {
			f.tensor(ledger.Alloc, uint32(1+i>>7), int32(i&127), 1, 0)
			f.alloc(uint32(1+i>>7), int32(i&127), 1)
		}
		for i := range n / 4 {
			f.event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: uint32(1 + i>>14), Address: f.now, Size: 1, Time: 1 << 50})
		}
		for i := range n / 4 {
			f.tensor(ledger.Totals, uint32(1+i>>12), 0, 1, uint64(i+1))
		}
	},
	"totals of allocators": func(f *forger, n int) {
		f.alloc(7, 0, 1)
		m := &wire.Tensors{Time: f.now}
		for i := range min(n, 100_000) {
			m.Totals = append(m.Totals, &wire.TensorTotals{Pid: 7, Device: int32(i & 127), Reserved: 1, Classes: 128, Class: []uint32{127}, Allocs: []uint64{1}, AllocBytes: []uint64{1}, Frees: []uint64{0}, FreeBytes: []uint64{0}})
		}
		f.flush()
		f.input(&wire.Input{What: &wire.Input_Tensors{Tensors: m}})
	},
	"driver objects": func(f *forger, n int) {
		for i := range n {
			f.event(ledger.Event{Op: ledger.ObjectCreate, Kind: ledger.Module, PID: 7, Address: uint64(i&255 + 1), Stack: uint64(i & 8191), Context: 3})
		}
	},
	"strays": func(f *forger, n int) {
		for i := range n / 2 {
			f.alloc(uint32(1+i>>14), ledger.UnknownDevice, 1)
		}
		for i := range n / 2 {
			f.event(ledger.Event{Op: ledger.Learn, PID: uint32(1 + i>>14), TID: 2})
		}
	},
	"live allocations": func(f *forger, n int) {
		for range n {
			f.alloc(7, 0, 1)
		}
	},
	"sites of all sorts": func(f *forger, n int) {
		for i := range n {
			f.alloc(uint32(i&0xfff), int32(i>>12&127), uint64(i))
		}
	},
	"failures": func(f *forger, n int) {
		for i := range n {
			f.event(ledger.Event{Op: ledger.AllocFailed, Kind: ledger.Device, PID: uint32(i&255 + 1), Result: 2, Stack: uint64(i), Size: 5})
			f.event(ledger.Event{Op: ledger.OutOfMemory, Kind: ledger.Device, PID: uint32(i&255 + 1), Result: 2, Stack: uint64(i), Size: 5})
		}
	},
	"exits": func(f *forger, n int) {
		for i := range n / 2 {
			f.alloc(uint32(i+1), int32(i&127), 1)
		}
		for i := range n / 2 {
			f.event(ledger.Event{Op: ledger.Exit, PID: uint32(1 + i)})
		}
	},
	"nothing, compressed": func(f *forger, n int) {
		for range n >> 10 {
			f.other(inputsFrame, &wire.Inputs{Handle: make([]byte, 8<<20-64)})
		}
	},
	"empty frames": func(f *forger, n int) {
		for i := range n {
			f.disk.sequence += uint32(i & 1)
			_ = f.disk.write(frame{kind: inputsFrame + 6*frameKind(i&1), first: uint64(i) << 20, last: uint64(i)<<20 + 1}, nil)
		}
	},
	"markers": func(f *forger, n int) {
		_ = f.disk.append([]byte(strings.Repeat(marker, n)))
	},
	"texts and mappings": func(f *forger, n int) {
		m := &wire.Stacks{}
		for range min(n, 350_000) {
			m.Text = append(m.Text, []byte("ab"))
			m.MappingPath, m.MappingBuild = append(m.MappingPath, 0), append(m.MappingBuild, 0)
			m.MappingStart, m.MappingLimit, m.MappingOffset = append(m.MappingStart, 0), append(m.MappingLimit, 0), append(m.MappingOffset, 0)
		}
		for range max(n/350_000, 4) {
			f.other(stacksFrame, m)
		}
	},
	"stacks of nothing": func(f *forger, n int) {
		f.names(1, n, 0)
		f.alloc(7, 0, 1)
	},
}
