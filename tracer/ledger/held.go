// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// HeldGrowth is how much more a holder keeps than at an earlier walk.
type HeldGrowth struct {
	Index           int // of the holder in the later list
	Bytes, Storages int64
	Entries         int64 // of its containers; 0 if their number is unknown at either walk
}

// Grown compares what two walks of a process found, by path and device, and returns the holders
// that have more bytes at the later one, the most growth first. What Python does not hold is among
// them.
func Grown(before, after []Held) []HeldGrowth {
	type key struct {
		path   string
		device int32
	}
	old := make(map[key]*Held, len(before))
	for i := range before {
		h := &before[i]
		old[key{h.Path, h.Device}] = h
	}
	var list []HeldGrowth
	for i := range after {
		h, was := &after[i], &Held{}
		if o := old[key{h.Path, h.Device}]; o != nil {
			was = o
		}
		g := HeldGrowth{Index: i, Bytes: int64(h.Bytes) - int64(was.Bytes), Storages: int64(h.Storages) - int64(was.Storages)}
		if h.Entries >= 0 && was.Entries >= 0 {
			g.Entries = int64(h.Entries) - int64(was.Entries)
		}
		if g.Bytes > 0 {
			list = append(list, g)
		}
	}
	slices.SortStableFunc(list, func(a, b HeldGrowth) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}

// Unheld returns what PyTorch's allocators had given out at a walk without a storage that the walk
// found, by device, and how much of it is older than the attach.
func (w *Walked) Unheld() []Held {
	var list []Held
	for i := range w.Allocators {
		t := &w.Allocators[i]
		if n := minus(t.Allocated, t.Held); n > 0 {
			list = append(list, Held{Holder: Holder{Device: t.Device, Entries: -1}, Bytes: n, Older: min(minus(t.Older, t.HeldOlder), n)})
		}
	}
	return list
}

// Divide returns how much each holder keeps of memory that has total bytes now and had whole bytes
// when the parts were found. The parts never get more than they had; what they leave has no known
// holder.
func Divide(parts []SiteHolder, whole, total uint64) []SiteHolder {
	weights := make([]uint64, 1, len(parts)+1)
	rest := whole
	for _, p := range parts {
		n := min(p.Bytes, rest)
		rest -= n
		weights = append(weights, n)
	}
	weights[0] = rest
	if total < whole {
		weights, _ = apportion(total, weights)
	}
	var list []SiteHolder
	for i, p := range parts {
		if n := weights[i+1]; n > 0 {
			list = append(list, SiteHolder{p.Holder, n})
		}
	}
	return list
}

// LatestWalk returns the latest walk of a process that found holders, or else the latest, and nil
// without one.
func (s *Snapshot) LatestWalk(process int) (latest *Walked) {
	for i := range s.Walks {
		if w := &s.Walks[i]; w.Process == process && (latest == nil || w.Failure == "" || latest.Failure != "") {
			latest = w
		}
	}
	return latest
}

// FirstWalk returns the first walk of a process that found holders, or nil.
func (s *Snapshot) FirstWalk(process int) *Walked {
	for i := range s.Walks {
		if w := &s.Walks[i]; w.Process == process && w.Failure == "" {
			return w
		}
	}
	return nil
}

// placeOlder returns how many bytes from before the attach an allocator has at the moment of a
// snapshot. If the allocator has not reported by then, they are those that a walk knows, at most
// what NVML says, and Balance.OlderTensors includes them.
func (s *Snapshot) placeOlder(index int, t *WalkTotals) uint64 {
	if live := s.TensorsOn(index, t.Device); live != nil {
		return live.Older
	}
	b := s.BalanceOf(index, t.Device)
	if b < 0 {
		return t.Older
	}
	x := &s.Balances[b]
	older := min(t.Older, minus(min(x.Baseline, x.Usage), x.OlderTensors))
	x.OlderTensors += older
	return older
}

// WalkOpened marks the begin of a walk of a process's memory, whose figures are from then. The
// next Walk of the process ends it.
type WalkOpened struct {
	PID  uint32
	Time uint64 // ns of CLOCK_MONOTONIC
}

// Walk is what one walk of a process's memory found: which objects keep its memory. See package
// holders.
type Walk struct {
	PID      uint32
	Time     uint64 // as in WalkOpened
	Took     uint64 // ns until the copy of the process's memory was complete
	Failure  string // why it found nothing: "cannot read this Python"; "" if it did
	Problems []string
	Holders  []Holder
	Storages []Storage
	Waste    []Waste
	Saved    []Saved
}

// Saved is what the autograd graph has saved in one instance of a module. Captures do not have it.
type Saved struct {
	Device int32
	Module string // "model.blocks.3"; untrusted, but cleaned
	Bytes  uint64 // of blocks
	Sure   uint64 // part of Bytes that functions saved which took the module's own parameters
}

// MaxSaved is the most modules of a walk.
const MaxSaved = 4096

// Waste is memory that could be freed without a loss to the program, as a walk proved. No byte is
// in two.
type Waste struct {
	Kind            string // holders.WasteKind: "views", "frozen", "gone", "errors", "ended", "copies"
	Path            string // of its holder, of copies of all; untrusted, but cleaned
	Device          int32
	Bytes, Storages uint64 // that could be freed, in so many storages
	Whole           uint64 // bytes of these storages
}

// Holder is a path that keeps memory alive. Its text is untrusted, but cleaned.
type Holder struct {
	Device     int32
	Path       string        // with a star for each number: "model.layers.*.weight"
	Frames     []string      // the same as frames of a stack, the root first
	Class      string        // the path from its innermost class on: "Trainer.history[*]"; "" if none
	Also       []string      // further paths to the same storages
	Container  string        // class of the innermost container: "list"; "" without one
	Containers int           // how many different containers
	Entries    int           // of all of them; -1: unknown
	Found      bool          // the path leads from Python to the storages
	Retention  retention.Set // how the path keeps them
	// What the storages are of a model, in bytes as the walk saw them; all 0 in captures of older
	// versions.
	Parts modelpart.Bytes
	Thing string // what a person would name of the path: the container of a pattern of many, else what the path leads to; "": unknown
	Many  bool   // Thing is a container of what is kept
}

// Storage is memory that a holder keeps.
type Storage struct {
	Address uint64
	Bytes   uint64 // of the storage
	// Size of its block, if the block was allocated since the attach; 0: it is older. Of an
	// Allocation without meaning.
	Block      uint64
	Holder     uint32 // index into Walk.Holders
	InMotion   bool   // it or its holder changed while they were read
	Allocation bool   // memory that the driver gave out, not PyTorch's allocator
}

// Walked is a Walk in the books: what each holder kept at Time. Memory of PyTorch's allocator
// counts in whole blocks, so that Held and what no storage explains add up to the allocator's
// total.
type Walked struct {
	Process    int
	Time, Took uint64 // as in Walk
	Failure    string
	Problems   []string
	Held       []Held       // by bytes, largest first
	Allocators []WalkTotals // by device; none where memory has no addresses, as with PyTorch before 1.10
	Waste      []Waste      // the most bytes first
	Saved      []Saved      // the most bytes first
	// By index in Held: part of Older that is live at the snapshot's moment. Nil except for the
	// latest walk of a process that found holders.
	Left []uint64
}

// Held is what one holder keeps.
type Held struct {
	Holder
	Bytes, Storages uint64
	Older           uint64 // part of Bytes that was allocated before the attach
	InMotion        uint64 // storages that changed while they were read
	Driver          uint64 // part of Bytes that the driver gave out, not PyTorch's allocator
	Lasted          bool   // the walks before and after the moment found the same of it: see NoteLasting
}

// WalkTotals is what one of PyTorch's allocators had given out at the time of a walk. What Held
// explains of it is at most as much.
type WalkTotals struct {
	Device              int32
	Allocated, Held     uint64 // bytes of all blocks, and of those of a storage that the walk found
	Older, HeldOlder    uint64 // those of them that were allocated before the attach
	Excess, ExcessOlder uint64 // bytes of storages beyond the allocator's total, which Held leaves out: they were freed meanwhile
	// The allocator has not reported since the attach: the figures are what the walk found, and it
	// may have more.
	Unreported bool
}

// SiteHolder is the part of a site's live bytes that one holder keeps.
type SiteHolder struct {
	Holder int // index into Held of the process's latest Walked
	Bytes  uint64
}

// Peak is the books of one process at its peak, since what is left at its end says little about
// what it needed.
type Peak struct {
	Process int    // index into Snapshot.Processes
	Bytes   uint64 // most that it had on one GPU: tensors where PyTorch reports them, else what it allocated
	Time    uint64 // when that was
	Tensors bool   // Bytes are of tensors
	OneGPU  bool   // the process had memory on others, too, which is not in Bytes
	// The moment of the sites. It differs from Time if PyTorch's allocator reached the peak with a
	// block that is not in the sample; the totals are those of the peak even so.
	SitesTime  uint64
	SitesBytes uint64 // Bytes at that moment
	// Its only process is this one, still running. It has live figures only: no History, Growth,
	// Cohorts, Oldest, Holders, Pools or Objects, and nothing asleep. The cache is spread evenly
	// over the segments.
	Books *Snapshot
	OOM   *OOM // the latest allocation that failed for good because of memory, or nil
}

// OOM is an allocation that failed for good because there was not enough memory.
type OOM struct {
	Time   uint64
	Bytes  uint64 // requested, or UnknownSize
	Stack  uint64
	API    string // "torch" for PyTorch's allocator, else the function
	Kind   Kind
	Device int32
	Count  uint64 // of the process
}

// PeakOf returns the peak of a process that has ended, or nil.
func (s *Snapshot) PeakOf(process int) *Peak {
	for i := range s.Peaks {
		if s.Peaks[i].Process == process {
			return &s.Peaks[i]
		}
	}
	return nil
}
