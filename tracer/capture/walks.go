// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math"
	"slices"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

const (
	// Holders and storages in one part of a walk, so that a part fits a frame.
	holdersPart  = 256
	storagesPart = 16 << 10

	// Limits of one walk, as those of the ledger.
	maxHolders   = 1 << 16
	maxStorages  = 1 << 20
	maxHolderIDs = 64 // frames, further paths and problems

	inMotion   = 1
	allocation = 2
)

// walkInputs returns a walk as messages; walkParts is the inverse.
func walkInputs(in *ledger.Walk) (list []*wire.Input) {
	holders, storages := in.Holders[:min(len(in.Holders), maxHolders)], in.Storages[:min(len(in.Storages), maxStorages)]
	var address uint64
	for {
		m := &wire.Walk{Pid: in.PID, Part: uint32(len(list))}
		if m.Part == 0 {
			m.Time, m.Took, m.Failure, m.Problem = in.Time, in.Took, []byte(in.Failure), textsOf(in.Problems)
			for i := range in.Waste[:min(len(in.Waste), ledger.MaxWaste)] {
				x := &in.Waste[i]
				m.Waste = append(m.Waste, &wire.Waste{Kind: []byte(x.Kind), Path: []byte(x.Path), Device: x.Device, Bytes: x.Bytes, Storages: x.Storages, Whole: x.Whole})
			}
		}
		n := min(len(holders), holdersPart)
		for i := range holders[:n] {
			m.Holder = append(m.Holder, holderMessage(&holders[i]))
		}
		if holders = holders[n:]; len(holders) == 0 {
			n := min(len(storages), storagesPart)
			address = addStorages(m, storages[:n], address)
			storages = storages[n:]
		}
		m.Last = len(holders) == 0 && len(storages) == 0
		list = append(list, &wire.Input{What: &wire.Input_Walk{Walk: m}})
		if m.Last {
			return list
		}
	}
}

func addStorages(m *wire.Walk, list []ledger.Storage, before uint64) uint64 {
	for i := range list {
		s := &list[i]
		var flags byte
		if s.InMotion {
			flags |= inMotion
		}
		if s.Allocation {
			flags |= allocation
		}
		m.Address, before = append(m.Address, int64(s.Address-before)), s.Address
		m.Size, m.Block, m.Held = append(m.Size, s.Bytes), append(m.Block, s.Block), append(m.Held, s.Holder)
		m.Flags = append(m.Flags, flags)
	}
	return before
}

func holderMessage(h *ledger.Holder) *wire.Holder {
	return &wire.Holder{
		Device: h.Device, Path: []byte(h.Path), Frame: textsOf(h.Frames), Class: []byte(h.Class), Also: textsOf(h.Also),
		Container: []byte(h.Container), Containers: uint32(h.Containers), Entries: int64(h.Entries), Found: h.Found, Retention: uint32(h.Retention), Part: h.Parts[:],
		Thing: []byte(h.Thing), Many: h.Many,
	}
}

func textsOf(list []string) (texts [][]byte) {
	for _, s := range list {
		texts = append(texts, []byte(s))
	}
	return texts
}

// walkParts collects the parts of a walk.
type walkParts struct {
	walk    ledger.Walk
	parts   uint32
	address uint64
}

// take adds a part, and tells the books when the walk is complete. It drops a walk with a missing
// part.
func (w *walkParts) take(m *wire.Walk, books ledger.Books) error {
	if m.GetPart() == 0 {
		*w = walkParts{walk: ledger.Walk{
			PID: m.GetPid(), Time: m.GetTime(), Took: m.GetTook(), Failure: clean(m.GetFailure()), Problems: cleaned(m.GetProblem()),
		}}
		for _, x := range m.GetWaste()[:min(len(m.GetWaste()), ledger.MaxWaste)] {
			w.walk.Waste = append(w.walk.Waste, ledger.Waste{Kind: clean(x.GetKind()), Path: clean(x.GetPath()), Device: x.GetDevice(), Bytes: x.GetBytes(), Storages: x.GetStorages(), Whole: x.GetWhole()})
		}
	}
	if m.GetPart() != w.parts || m.GetPid() != w.walk.PID {
		*w = walkParts{}
		return nil
	}
	n := len(m.GetAddress())
	if len(m.GetSize()) != n || len(m.GetBlock()) != n || len(m.GetHeld()) != n || len(m.GetFlags()) != n {
		return errColumns
	}
	if len(w.walk.Storages)+n > maxStorages || len(w.walk.Holders)+len(m.GetHolder()) > maxHolders {
		return errTooMany
	}
	w.parts++
	for _, h := range m.GetHolder() {
		w.walk.Holders = append(w.walk.Holders, holderOf(h))
	}
	w.walk.Storages = slices.Grow(w.walk.Storages, n)
	for i := range n {
		w.address += uint64(m.Address[i])
		w.walk.Storages = append(w.walk.Storages, ledger.Storage{
			Address: w.address, Bytes: m.Size[i], Block: m.Block[i], Holder: m.Held[i],
			InMotion: m.Flags[i]&inMotion != 0, Allocation: m.Flags[i]&allocation != 0,
		})
	}
	if m.GetLast() {
		books.Tell(w.walk)
		*w = walkParts{}
	}
	return nil
}

func holderOf(h *wire.Holder) ledger.Holder {
	path := clean(h.GetPath())
	return ledger.Holder{
		Device: h.GetDevice(), Path: path, Retention: retention.Read(retention.Set(h.GetRetention()), path), Frames: cleaned(h.GetFrame()), Class: clean(h.GetClass()), Also: cleaned(h.GetAlso()),
		Container: clean(h.GetContainer()), Containers: int(h.GetContainers()), Entries: int(h.GetEntries()), Found: h.GetFound(), Thing: clean(h.GetThing()), Many: h.GetMany(),
		Parts: modelpart.Read(h.GetPart()),
	}
}

func cleaned(texts [][]byte) (list []string) {
	for _, b := range texts[:min(len(texts), maxHolderIDs)] {
		list = append(list, clean(b))
	}
	return list
}

// firstWalk is how long after a moment a process's walk may be booked that began before it.
const firstWalk = uint64(3e9)

// latestWalk is how much later than a moment a process's next walk may be that shows what it had
// then.
const latestWalk = uint64(60e9)

// laterWalks plays on after a snapshot, and adds to it the first walk of each process that is
// nearer to its moment than the latest one before.
type laterWalks struct {
	*ledger.Ledger
	s    *ledger.Snapshot
	told map[uint32]bool   // pids whose first walk since then was told
	next map[uint32]uint64 // by pid, when the first walk that began after the moment was told: see walksAfter
}

// until returns when the walks that are of use have been told: up to latestWalk later, they show
// what lines of code allocate for, and what lasted.
func (w *laterWalks) until(end uint64) (until uint64) {
	for i := range w.s.Processes {
		if at := w.next[w.s.Processes[i].PID]; w.s.Processes[i].End == 0 && at != 0 && at <= w.s.End+w.reach(i) {
			until = max(until, at)
		}
	}
	if until >= end {
		return math.MaxUint64 // the last walks come after the end
	}
	return until
}

// reach is how much later than the moment a walk of a process is of use, in ns.
func (w *laterWalks) reach(process int) uint64 {
	last := w.s.LatestWalk(process)
	switch {
	case !w.told[w.s.Processes[process].PID] && slices.ContainsFunc(w.s.Tensors, func(t ledger.Tensors) bool { return t.Process == process }):
		return latestWalk
	case last != nil && last.Failure == "":
		return max(distance(last.Time, w.s.End), firstWalk)
	}
	return firstWalk
}

// walksAfter returns by pid when the walks were told that came after a moment, up to the first that
// began after it. Events are not decoded, which takes most of the time of playing them.
func (r *Reader) walksAfter(at, until uint64) (map[uint32]uint64, error) {
	told, begun, done := map[uint32]uint64{}, map[uint32]uint64{}, map[uint32]bool{}
	var inputs wire.Inputs
	var b buffers
	for i := range r.frames {
		f := &r.frames[i]
		if f.kind != inputsFrame || f.last <= at {
			continue
		}
		if f.first > until {
			break
		}
		if err := r.reached(); err != nil {
			return nil, err
		}
		if err := r.load(f, &inputs, &b); err != nil {
			if isDamage(err) { // the Player counts it
				continue
			}
			return nil, err
		}
		for _, in := range inputs.Input {
			m := in.GetWalk()
			if m == nil || in.GetTime() <= at || len(m.GetFailure()) > 0 || done[m.GetPid()] {
				continue
			}
			if m.GetPart() == 0 {
				begun[m.GetPid()] = m.GetTime()
			}
			if m.GetLast() {
				told[m.GetPid()], done[m.GetPid()] = in.GetTime(), begun[m.GetPid()] > at
			}
		}
	}
	return told, nil
}

// Tell tells the ledger, and looks for walks.
func (w *laterWalks) Tell(in ledger.Input) {
	w.Ledger.Tell(in)
	walk, ok := in.(ledger.Walk)
	if !ok || walk.Failure != "" || w.told[walk.PID] {
		return
	}
	w.told[walk.PID] = walk.Time > w.s.End // else it was under way
	for i := range w.s.Processes {
		p := &w.s.Processes[i]
		if last := w.s.LatestWalk(i); p.PID == walk.PID && p.End == 0 && (last == nil || distance(walk.Time, w.s.End) < distance(last.Time, w.s.End)) {
			w.AddWalk(w.s, walk.PID)
		}
		if p.PID == walk.PID && p.End == 0 && w.told[walk.PID] {
			ledger.NoteLasting(w.Ledger, w.s, walk.PID)
		}
	}
}

func distance(a, b uint64) uint64 { return max(a, b) - min(a, b) }
