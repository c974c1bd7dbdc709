// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// blockStep is what PyTorch's allocator rounds sizes up to.
const blockStep = 512

// maxAlsoLines bounds the further holders that a line names.
const maxAlsoLines = 3

const (
	deviceCPU  = 0 // c10::DeviceType
	deviceCUDA = 1
)

// Line sums the storages that holders of one pattern keep on one device.
type Line struct {
	Holder     string        // the path, with a star for each number: "model.layers.*.weight"
	Class      string        // the same path from its innermost class on: "Trainer.history[*]"; "" if none
	Path       []string      // the same path in pieces, as Parts returns them
	Place      string        // where it begins, of a function's variable: "main() (train.py:7)"
	Function   string        // of Place: "main()"; "a function" if unknown
	Now        int           // the line that Function executed when it was read; 0: unknown
	Device     string        // "cuda:0", "cpu"
	Found      bool          // the path leads from Python to the storages
	Retention  retention.Set // how the path keeps them
	Thing      string        // what a person would name: of elements their container, else what the path leads to; "trainer.history"
	Many       bool          // Thing is a container of what is kept
	Bytes      uint64
	Storages   uint64
	Container  string          // class of the innermost container: "list"; "" without one
	Containers int             // how many different containers
	Entries    int             // of all of them, as their lengths say; -1: unknown
	Parts      modelpart.Bytes // what the storages are of a model, in blocks of PyTorch's allocator
	InMotion   uint64          // storages that changed while they were read
	Also       []string

	lengths map[uint64]int // of containers, by address
}

// Lines sums a result by holder and device, the largest first. Their bytes add up to those of
// all storages.
func (r *Result) Lines() []Line {
	type key struct {
		pattern string
		device  string
	}
	type same struct { // storages of one holder and device are of one line
		holder       *Holder
		kind, device int
	}
	at, of := map[key]int{}, map[same]int{}
	also := []map[string]uint64{}
	var list []Line
	for i := range r.Storages {
		s := &r.Storages[i]
		one := same{s.Holder, s.DeviceType, s.Device}
		n, known := of[one]
		if !known {
			k := key{s.Holder.Pattern(), s.DeviceName()}
			if n, known = at[k]; !known {
				n = len(list)
				at[k] = n
				list = append(list, newLine(s.Holder, k.pattern, k.device))
				also = append(also, map[string]uint64{})
			}
			of[one] = n
			list[n].Retention |= s.Holder.retention()
		}
		list[n].add(s)
		for _, h := range s.Also {
			also[n][h.Pattern()]++
		}
	}
	for n := range list {
		list[n].finish(also[n])
	}
	slices.SortFunc(list, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Holder, b.Holder))
	})
	return list
}

func newLine(h *Holder, pattern, device string) Line {
	l := Line{
		Holder: pattern, Class: h.ByClass(), Path: h.Parts(), Place: h.root.Where(), Function: h.root.function(), Now: h.root.Now, Device: device, lengths: map[uint64]int{},
		Found: h.root.Kind != RootNone && h.root.Kind != RootNative,
	}
	l.Thing, l.Many = h.thing()
	return l
}

func (l *Line) add(s *Storage) {
	l.Bytes += s.Bytes
	l.Storages++
	l.Parts[s.Part] += BlockBytes(s.Bytes)
	if s.InMotion {
		l.InMotion++
	}
	if c := s.Container; c.Address != 0 {
		l.Container = c.Class
		l.lengths[c.Address] = c.Entries
	}
}

// BlockBytes returns the size of the block of PyTorch's allocator that a storage needs.
func BlockBytes(storage uint64) uint64 {
	return (max(storage, 1) + blockStep - 1) &^ (blockStep - 1)
}

// finish sums the containers, and names further holders of at least half of the storages. Those of
// fewer are mostly variables of calls that run.
func (l *Line) finish(also map[string]uint64) {
	l.Containers = len(l.lengths)
	for _, n := range l.lengths {
		if n < 0 || l.Entries < 0 {
			l.Entries = -1
			continue
		}
		l.Entries += n
	}
	delete(also, l.Holder)
	for pattern, storages := range also {
		if 2*storages >= l.Storages {
			l.Also = append(l.Also, pattern)
		}
	}
	slices.SortFunc(l.Also, func(a, b string) int { return cmp.Or(cmp.Compare(also[b], also[a]), cmp.Compare(a, b)) })
	l.Also = l.Also[:min(len(l.Also), maxAlsoLines)]
}

// DeviceName returns the device as PyTorch writes it: "cuda:0", "cpu".
func (s *Storage) DeviceName() string {
	switch s.DeviceType {
	case deviceCPU:
		return "cpu"
	case deviceCUDA:
		return fmt.Sprintf("cuda:%d", max(s.Device, 0))
	}
	return fmt.Sprintf("device %d:%d", s.DeviceType, s.Device)
}

// ErrNoTensors reports a Python that has no tensor of PyTorch, where the caller named no
// allocations.
var ErrNoTensors = errors.New("no PyTorch tensor in its Python")

// WalkError reports that the memory of a process was read, and its holders not found.
type WalkError struct{ Err error }

func (e *WalkError) Error() string { return "find holders: " + e.Err.Error() }

func (e *WalkError) Unwrap() error { return e.Err }

// Options are the limits of a walk. A zero means the default.
type Options struct {
	MaxMemory  uint64 // bytes that are copied; where more is resident, pages are read when needed
	MaxObjects int    // Python and C++ objects
	HideNames  bool   // return classes only, no names of variables, attributes or keys
	Host       bool   // also storages in host memory
	// Addresses are live allocations of the driver, or live blocks of an allocator, each address
	// once, at most 2^20 of them. The walk searches memory for those in which no storage of PyTorch
	// lies: an object of any type that has the address is a holder. They are among Result.Storages,
	// marked as allocations. So are storages in host memory that one of them contains. The walk
	// keeps no reference to the slice.
	Addresses []Range
	// AddressesLater, if set, returns Addresses once the memory was copied.
	AddressesLater func() []Range
}

// Storage is the memory of one or more tensors, or an allocation that Options.Addresses names.
type Storage struct {
	Address    uint64 // of its first byte: the block's address for PyTorch's allocator
	Bytes      uint64
	DeviceType int // PyTorch's number: 0 CPU, 1 CUDA
	Device     int
	Holder     *Holder
	Also       []*Holder      // further holders, at most 4
	Container  Container      // the innermost container on the holder's path
	Part       modelpart.Kind // what it is of a model
	Module     Module         // of what the autograd graph has saved: where
	InMotion   bool           // it or its holder changed while the walk read them
	Allocation bool           // one of Options.Addresses, without a storage of PyTorch; Bytes and Device are the caller's
	Inside     bool           // of an allocation: its holder does not have its address, only one inside: weaker evidence
}

// Result is what one walk found.
type Result struct {
	Python    string // "3.13.5"
	Storages  []Storage
	Waste     []Waste   // what could be freed, the most bytes first
	Objects   int       // that were reached from a root
	Tracked   int       // by the collector
	Loose     int       // tracked, but reached from no root
	Automatic Automatic // whether the collector runs by itself
	Threads   int
	Execution peek.Execution // of the process that was read
	Problems  []string       // what could not be read, as sentences
	Bad       uint64         // reads of addresses that nothing backs
	Copied    uint64         // bytes
	At        time.Time
	Times     Times
}

// Times are how long the parts of a walk took.
type Times struct {
	Copy, Lists, Search, Loose, Rest, Total time.Duration
}

// SameProgram reports whether two walks can have read the same program: that no exec lies between
// them. It is true where one of the walks does not know.
func (r *Result) SameProgram(o *Result) bool { return !r.Execution.Differs(o.Execution) }

// problem counts something that could not be read.
func (r *Result) problem(n int, sentence string) {
	if n > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("%s: %d", sentence, n))
	}
}

// Held returns the bytes with a holder in Python, and all bytes of storages.
func (r *Result) Held() (held, all uint64) {
	for _, s := range r.Storages {
		all += s.Bytes
		if s.Holder != nil && s.Holder.root.Kind != RootNone && s.Holder.root.Kind != RootNative {
			held += s.Bytes
		}
	}
	return held, all
}

// pathless returns the share of bytes of storages for which nothing was found.
func (r *Result) pathless() float64 {
	var none, all uint64
	for i := range r.Storages {
		s := &r.Storages[i]
		all += s.Bytes
		if !s.Allocation && !s.InMotion && s.Holder != nil && s.Holder.Root().Kind == RootNone {
			none += s.Bytes
		}
	}
	return float64(none) / float64(max(all, 1))
}

// Range is memory that the caller knows from the books of the driver or of an allocator.
type Range struct {
	Address, Bytes uint64
	Device         int // CUDA's ordinal in the process
}

func (r Range) end() uint64 { return r.Address + r.Bytes }
