// SPDX-License-Identifier: Apache-2.0

// Package holders finds out who keeps the GPU memory of a running PyTorch: for each storage the
// Python path that keeps it alive, such as "model.layers.3.fc1.weight" or "Trainer.history[*]". It
// only reads memory: the process is not stopped, and no code runs in it. It copies what is resident,
// finds CPython's objects and PyTorch's in the copy, and searches the cheapest path from modules
// and frames to each storage.
//
// Everything that is read is hostile. Counts, bytes, depths and times are bounded; a process that
// changes its memory on purpose only spoils the answer about itself.
package holders

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

const (
	// DefaultMemory is the most that a walk copies by default: 1 GiB.
	DefaultMemory = 1 << 30
	// DefaultObjects is the most objects that a walk looks at by default.
	DefaultObjects = 20 << 20
	// DefaultTime is the longest that a walk takes by default.
	DefaultTime = 30 * time.Second

	deviceCPU  = 0 // c10::DeviceType
	deviceCUDA = 1

	inUse    = "in use by the running step"
	byClass  = "backward pass" // in use by the running step, as the class of an object says
	onThread = "stack of a thread"
)

// ErrNoTensors reports a Python that has no tensor of PyTorch, where the caller named no allocations.
var ErrNoTensors = errors.New("no PyTorch tensor in the process")

// ErrExec reports a process that has executed another program while it was read.
var ErrExec = errors.New("it executed another program while it was read")

// Options are the limits of a walk. A zero means the default.
type Options struct {
	MaxMemory  uint64        // bytes that are copied; where more is resident, pages are read when needed
	MaxObjects int           // Python and C++ objects
	MaxTime    time.Duration // of the search
	HideNames  bool          // return classes only, no names of variables, attributes or keys
	Host       bool          // also storages in host memory
	// Addresses are live allocations of the driver, or live blocks of an allocator, each address once,
	// at most 2^20 of them. The walk searches memory for those in which no storage of PyTorch lies: an
	// object of any type that has the address is a holder. They are among Result.Storages, marked as
	// allocations. So are storages in host memory that one of them contains. The walk keeps no
	// reference to the slice.
	Addresses []Range
}

// Storage is the memory of one or more tensors, or an allocation that Options.Addresses names.
type Storage struct {
	Address    uint64 // of its first byte: the block's address for PyTorch's allocator
	Bytes      uint64
	DeviceType int // PyTorch's number: 0 CPU, 1 CUDA
	Device     int
	Holder     *Holder
	Also       []*Holder // further holders, at most 4
	Container  Container // the innermost container on the holder's path
	InMotion   bool      // it or its holder changed while the walk read them
	Allocation bool      // one of Options.Addresses, without a storage of PyTorch; Bytes and Device are the caller's
	Inside     bool      // of an allocation: its holder does not have its address, only one inside: weaker evidence
}

// Result is what one walk found.
type Result struct {
	Python    string // "3.13.5"
	Storages  []Storage
	Objects   int       // that were reached from a root
	Tracked   int       // by the collector
	Loose     int       // tracked, but reached from no root
	Automatic Automatic // whether the collector runs by itself
	Threads   int
	Execution peek.Execution // of the process that was read
	Problems  []string         // what could not be read, as sentences
	Bad       uint64           // reads of addresses that nothing backs
	Copied    uint64           // bytes
	At        time.Time
	Times     Times
}

// Automatic is whether Python's garbage collector runs by itself: cycles stay where it does not.
type Automatic uint8

const (
	AutomaticUnknown Automatic = iota
	AutomaticOn
	AutomaticOff
)

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

// Walk finds who holds each storage of a process. If the process changed meanwhile and many bytes
// have no holder, Walk reads it once more, and returns the result with fewer such bytes.
func Walk(ctx context.Context, mem peek.Memory, o Options) (*Result, error) {
	if o.MaxMemory == 0 {
		o.MaxMemory = DefaultMemory
	}
	if o.MaxObjects <= 0 {
		o.MaxObjects = DefaultObjects
	}
	o.MaxObjects = min(o.MaxObjects, 1<<30)
	if o.MaxTime <= 0 {
		o.MaxTime = DefaultTime
	}
	ctx, cancel := context.WithTimeout(ctx, o.MaxTime)
	defer cancel()
	begin := time.Now()
	first, torn, err := once(ctx, mem, o)
	if err != nil || !torn {
		return first, err
	}
	second, _, err := once(ctx, mem, o)
	if errors.Is(err, ErrExec) {
		return nil, err
	}
	best := first
	if err == nil && second.pathless() < first.pathless() {
		best = second
	}
	best.Problems = append(best.Problems, "the process changed while it was read, and was read twice")
	best.Times.Total = time.Since(begin)
	return best, nil
}

// once walks once. torn reports that a second walk may find more.
func once(ctx context.Context, mem peek.Memory, o Options) (result *Result, torn bool, err error) {
	w := &walk{Options: o, ctx: ctx, mem: mem, begin: time.Now(), result: &Result{At: time.Now()}}
	p, running := mem.(*peek.Process)
	if running {
		w.result.Execution = p.Execution()
	}
	if c, is := mem.(*peek.Copy); is {
		w.copy, w.mem = c, c.Memory()
	} else {
		w.copy = peek.NewCopy(mem, o.MaxMemory)
		defer w.copy.Close()
		if err := w.copy.Take(ctx); err != nil {
			return nil, false, err
		}
	}
	w.live, _ = w.mem.(*peek.Process)
	if err := w.run(ctx); err != nil {
		return nil, false, fmt.Errorf("find holders: %w", err)
	}
	if running && w.result.Execution.Differs(p.Execution()) {
		return nil, false, ErrExec
	}
	return w.result, running && w.changed && w.result.pathless() > maxPathless, nil
}

// maxPathless is the share of bytes without a holder above which a walk is repeated if lists or
// containers changed meanwhile: a list that grew while it was copied loses all that it holds.
const maxPathless = 0.05

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
