// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// inputOf turns an input of the ledger into a message; applier.apply is the inverse.
func inputOf(in ledger.Input) *wire.Input {
	switch in := in.(type) {
	case ledger.Begin:
		return &wire.Input{What: &wire.Input_Begin{Begin: in.Time}}
	case ledger.Process:
		return processInput(&in)
	case ledger.Devices:
		return &wire.Input{What: &wire.Input_Devices{Devices: devicesOf(in.PID, in.UUIDs)}}
	case ledger.GPUs:
		return gpusInput(in)
	case ledger.UsageOpened:
		return &wire.Input{What: &wire.Input_OpenUsage{OpenUsage: in.Time}}
	case ledger.UsageReading:
		return usagesInput(in.Time, in.Usages)
	case ledger.SystemReading:
		return systemInput(&in)
	case ledger.TensorReading:
		return tensorsInput(in.Time, in.Totals)
	case ledger.Segments:
		return &wire.Input{What: &wire.Input_Segments{Segments: &wire.Segments{Stack: slices.Clone(in)}}}
	case ledger.SampleRate:
		return &wire.Input{What: &wire.Input_SampleRate{SampleRate: &wire.SampleRate{Mean: in.Mean, Limit: in.Limit}}}
	case ledger.Sampling:
		return &wire.Input{What: &wire.Input_Sampling{Sampling: &wire.Sampling{Probability: slices.Clone(in)}}}
	case ledger.Stats:
		return statsInput(&in)
	case ledger.WalkOpened:
		return &wire.Input{What: &wire.Input_OpenWalk{OpenWalk: &wire.OpenWalk{Pid: in.PID, Time: in.Time}}}
	case ledger.Forget:
		return &wire.Input{What: &wire.Input_Forget{Forget: in.Before}}
	case ledger.Untraced:
		return &wire.Input{What: &wire.Input_Untraced{Untraced: untracedOf(&in)}}
	case ledger.PyTorch:
		return pytorchInput(&in)
	case ledger.Fold:
		return &wire.Input{What: &wire.Input_Fold{Fold: &wire.Fold{Pid: in.PID, Below: in.Below}}}
	case ledger.Limits:
		return &wire.Input{What: &wire.Input_Limits{Limits: &wire.Limits{Sites: in.Sites, Live: in.Live}}}
	case ledger.Carried:
		return carriedInput(&in)
	case ledger.Warning:
		if in.PID != 0 {
			return &wire.Input{What: &wire.Input_ProcessWarning{ProcessWarning: &wire.ProcessWarning{Pid: in.PID, Text: []byte(in.Text)}}}
		}
		return &wire.Input{What: &wire.Input_Warning{Warning: []byte(in.Text)}}
	}
	return &wire.Input{}
}

func processInput(p *ledger.Process) *wire.Input {
	m := &wire.Process{
		Pid: p.PID, Comm: []byte(p.Comm), Exe: []byte(p.Exe), Begin: p.Begin, User: p.User, OwnRoot: p.OwnRoot,
		Container: []byte(p.Container), Pod: []byte(p.Pod), Namespace: []byte(p.Namespace), Job: []byte(p.Job),
		Rank: []byte(p.Rank), LocalRank: []byte(p.LocalRank), WorldSize: []byte(p.WorldSize),
		PodContainer: []byte(p.PodContainer), Actor: []byte(p.Actor), Started: p.Started,
	}
	if p.Devices != nil {
		m.Devices = devicesOf(p.PID, p.Devices)
	}
	return &wire.Input{What: &wire.Input_Process{Process: m}}
}

func devicesOf(pid uint32, uuids []string) *wire.Devices {
	m := &wire.Devices{Pid: pid}
	for _, uuid := range uuids {
		m.Uuid = append(m.Uuid, []byte(uuid))
	}
	return m
}

func gpusInput(gpus []ledger.GPU) *wire.Input {
	m := &wire.GPUs{}
	for _, g := range gpus {
		m.Gpu = append(m.Gpu, &wire.GPU{
			Index: int32(g.Index), Uuid: []byte(g.UUID), Parent: []byte(g.Parent), Name: []byte(g.Name), Total: g.Total, Used: g.Used,
			Integrated: g.Integrated, Addressing: uint32(g.Addressing), Node: nodeOf(&g),
		})
	}
	return &wire.Input{What: &wire.Input_Gpus{Gpus: m}}
}

func usagesInput(time uint64, usages []ledger.Usage) *wire.Input {
	m := &wire.Usages{Time: time}
	for _, u := range usages {
		m.Usage = append(m.Usage, &wire.Usage{Pid: u.PID, Uuid: []byte(u.UUID), Bytes: u.Bytes, Rough: u.Rough})
	}
	return &wire.Input{What: &wire.Input_Usages{Usages: m}}
}

func tensorsInput(time uint64, totals []ledger.TensorTotals) *wire.Input {
	m := &wire.Tensors{Time: time}
	for i := range totals {
		x := &totals[i]
		t := &wire.TensorTotals{
			Pid: x.PID, Device: x.Device, Reported: x.Reported, Allocated: x.Allocated, Reserved: x.Reserved,
			OlderFrees: x.OlderFrees, OlderBytes: x.OlderBytes, Unbooked: x.Unbooked, Classes: uint32(len(x.Classes)),
			Live: x.Live, Peak: x.Peak, PeakTime: x.PeakTime,
		}
		for class, c := range x.Classes {
			if c != (ledger.ClassTotals{}) {
				t.Class = append(t.Class, uint32(class))
				t.Allocs, t.AllocBytes = append(t.Allocs, c.Allocs), append(t.AllocBytes, c.AllocBytes)
				t.Frees, t.FreeBytes = append(t.Frees, c.Frees), append(t.FreeBytes, c.FreeBytes)
			}
		}
		m.Totals = append(m.Totals, t)
	}
	return &wire.Input{What: &wire.Input_Tensors{Tensors: m}}
}

func carriedInput(in *ledger.Carried) *wire.Input {
	m := &wire.Carried{Piece: in.Piece, Stack: slices.Clone(in.Stacks), Data: slices.Clone(in.Data)}
	for _, text := range in.Texts {
		m.Text = append(m.Text, []byte(text))
	}
	return &wire.Input{What: &wire.Input_Carried{Carried: m}}
}

func carriedOf(m *wire.Carried) ledger.Carried {
	in := ledger.Carried{Piece: m.GetPiece(), Stacks: m.GetStack(), Data: m.GetData()}
	for _, text := range m.GetText() {
		in.Texts = append(in.Texts, clean(text))
	}
	return in
}

// blocksInput returns one part of a list.
func blocksInput(pid uint32, part uint32, list []ledger.Block, last bool) *wire.Input {
	m := &wire.Blocks{
		Pid: pid, Part: part, Last: last,
		Address: make([]int64, len(list)), Size: make([]uint64, len(list)), Device: make([]int32, len(list)),
	}
	var before uint64
	for i := range list {
		m.Address[i] = int64(list[i].Address - before)
		before = list[i].Address
		m.Size[i], m.Device[i] = list[i].Size, list[i].Device
	}
	return &wire.Input{What: &wire.Input_Blocks{Blocks: m}}
}

// size returns an upper estimate of an input's bytes in a frame.
func size(in *wire.Input) int {
	if what, ok := in.What.(*wire.Input_Blocks); ok {
		return 24 * len(what.Blocks.Address)
	}
	return proto.Size(in) + 16
}

// applier gives inputs to books.
type applier struct {
	blocks    []ledger.Block // of the parts so far
	pid       uint32
	parts     uint32
	walk      walkParts
	allocator allocatorParts
}

// maxBlocks bounds a list; the kernel half has space for fewer.
const maxBlocks = 16 << 20

func (a *applier) apply(in *wire.Input, books ledger.Books) error {
	switch what := in.What.(type) {
	case *wire.Input_Begin:
		books.Tell(ledger.Begin{Time: what.Begin})
	case *wire.Input_Process:
		books.Tell(processOf(what.Process))
	case *wire.Input_Devices:
		books.Tell(ledger.Devices{PID: what.Devices.GetPid(), UUIDs: uuidsOf(what.Devices)})
	case *wire.Input_Gpus:
		if len(what.Gpus.GetGpu()) > maxGPUs {
			return errTooMany
		}
		books.Tell(ledger.GPUs(gpusOf(what.Gpus)))
	case *wire.Input_OpenUsage:
		books.Tell(ledger.UsageOpened{Time: what.OpenUsage})
	case *wire.Input_Usages:
		books.Tell(ledger.UsageReading{Time: what.Usages.GetTime(), Usages: usagesOf(what.Usages)})
	case *wire.Input_System:
		in, err := systemOf(what.System)
		if err != nil {
			return err
		}
		books.Tell(in)
	case *wire.Input_Tensors:
		totals, err := totalsOf(what.Tensors)
		if err != nil {
			return err
		}
		books.Tell(ledger.TensorReading{Time: what.Tensors.GetTime(), Totals: totals})
	case *wire.Input_Blocks:
		return a.takeBlocks(what.Blocks, books)
	case *wire.Input_Allocator:
		return a.allocator.take(what.Allocator, books)
	case *wire.Input_OpenWalk:
		books.Tell(ledger.WalkOpened{PID: what.OpenWalk.GetPid(), Time: what.OpenWalk.GetTime()})
	case *wire.Input_Walk:
		return a.walk.take(what.Walk, books)
	case *wire.Input_Segments:
		books.Tell(ledger.Segments(what.Segments.GetStack()))
	case *wire.Input_SampleRate:
		books.Tell(ledger.SampleRate{Mean: what.SampleRate.GetMean(), Limit: what.SampleRate.GetLimit()})
	case *wire.Input_Sampling:
		books.Tell(ledger.Sampling(what.Sampling.GetProbability()))
	case *wire.Input_Stats:
		return setStats(what.Stats, books)
	case *wire.Input_Untraced:
		setUntraced(what.Untraced, books)
	case *wire.Input_Forget:
		books.Tell(ledger.Forget{Before: what.Forget})
	case *wire.Input_Pytorch:
		books.Tell(pytorchOf(what.Pytorch))
	case *wire.Input_Fold:
		books.Tell(ledger.Fold{PID: what.Fold.GetPid(), Below: what.Fold.GetBelow()})
	case *wire.Input_Limits:
		books.Tell(ledger.Limits{Sites: what.Limits.GetSites(), Live: what.Limits.GetLive()})
	case *wire.Input_Carried:
		books.Tell(carriedOf(what.Carried))
	case *wire.Input_ProcessWarning:
		books.Tell(ledger.Warning{PID: what.ProcessWarning.GetPid(), Text: clean(what.ProcessWarning.GetText())})
	case *wire.Input_Warning:
		books.Tell(ledger.Warning{Text: clean(what.Warning)})
	}
	return nil // or an input from a later vramprof
}

func processOf(m *wire.Process) ledger.Process {
	p := ledger.Process{
		PID: m.GetPid(), Comm: clean(m.GetComm()), Exe: clean(m.GetExe()), Begin: m.GetBegin(), User: m.GetUser(), OwnRoot: m.GetOwnRoot(), Started: m.GetStarted(),
		Workload: ledger.Workload{
			Container: clean(m.GetContainer()), Pod: clean(m.GetPod()), Namespace: clean(m.GetNamespace()), Job: clean(m.GetJob()),
			Rank: clean(m.GetRank()), LocalRank: clean(m.GetLocalRank()), WorldSize: clean(m.GetWorldSize()),
			PodContainer: clean(m.GetPodContainer()), Actor: clean(m.GetActor()),
		},
	}
	if m.GetDevices() != nil {
		p.Devices = append([]string{}, uuidsOf(m.Devices)...)
	}
	return p
}

func uuidsOf(m *wire.Devices) (list []string) {
	for _, uuid := range m.GetUuid()[:min(len(m.GetUuid()), maxOrdinals)] {
		list = append(list, clean(uuid))
	}
	return list
}

func gpusOf(m *wire.GPUs) (list []ledger.GPU) {
	for _, g := range m.GetGpu() {
		list = append(list, ledger.GPU{
			Index: int(g.GetIndex()), UUID: clean(g.GetUuid()), Parent: clean(g.GetParent()), Name: clean(g.GetName()), Total: g.GetTotal(), Used: g.GetUsed(),
			Integrated: g.GetIntegrated(), Addressing: ledger.Addressing(min(g.GetAddressing(), math.MaxUint8)), HasNode: g.GetNode() > 0, Node: max(g.GetNode(), 1) - 1,
		})
	}
	return list
}

func usagesOf(m *wire.Usages) (list []ledger.Usage) {
	for _, u := range m.GetUsage() {
		list = append(list, ledger.Usage{PID: u.GetPid(), UUID: clean(u.GetUuid()), Bytes: u.GetBytes(), Rough: u.GetRough()})
	}
	return list
}

func totalsOf(m *wire.Tensors) (list []ledger.TensorTotals, err error) {
	if len(m.GetTotals()) > maxTotals {
		return nil, errTooMany
	}
	for _, t := range m.GetTotals() {
		x := ledger.TensorTotals{
			PID: t.GetPid(), Device: t.GetDevice(), Reported: t.GetReported(), Allocated: t.GetAllocated(), Reserved: t.GetReserved(),
			OlderFrees: t.GetOlderFrees(), OlderBytes: t.GetOlderBytes(), Unbooked: t.GetUnbooked(),
			Live: t.GetLive(), Peak: t.GetPeak(), PeakTime: t.GetPeakTime(),
		}
		n := len(t.GetClass())
		if t.GetClasses() > ledger.SizeClasses || len(t.Allocs) != n || len(t.AllocBytes) != n || len(t.Frees) != n || len(t.FreeBytes) != n {
			return nil, errColumns
		}
		if t.GetClasses() > 0 {
			x.Classes = make([]ledger.ClassTotals, t.GetClasses())
		}
		for i, class := range t.GetClass() {
			if uint64(class) >= uint64(len(x.Classes)) {
				return nil, errColumns
			}
			x.Classes[class] = ledger.ClassTotals{Allocs: t.Allocs[i], AllocBytes: t.AllocBytes[i], Frees: t.Frees[i], FreeBytes: t.FreeBytes[i]}
		}
		list = append(list, x)
	}
	return list, nil
}

// takeBlocks collects the parts of a list. It drops a list with a missing part.
func (a *applier) takeBlocks(m *wire.Blocks, books ledger.Books) error {
	if m.GetPart() == 0 {
		a.blocks, a.pid, a.parts = a.blocks[:0], m.GetPid(), 0
	}
	if m.GetPart() != a.parts || m.GetPid() != a.pid {
		a.blocks, a.parts = a.blocks[:0], 0
		return nil
	}
	n := len(m.GetAddress())
	if len(m.GetSize()) != n || len(m.GetDevice()) != n || len(a.blocks)+n > maxBlocks {
		return errColumns
	}
	a.parts++
	a.blocks = slices.Grow(a.blocks, n)
	address := uint64(0)
	for i := range n {
		address += uint64(m.Address[i])
		a.blocks = append(a.blocks, ledger.Block{Address: address, Size: m.Size[i], Device: m.Device[i]})
	}
	if m.GetLast() {
		books.Tell(ledger.BlockList{PID: a.pid, Blocks: a.blocks})
		a.blocks, a.parts = nil, 0
	}
	return nil
}
