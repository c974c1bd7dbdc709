// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// Reader takes new stacks from the kernel half's ring into a Store. One goroutine calls Run; any
// may call Lost and Settle.
type Reader struct {
	Ring    *ringbuf.Reader
	Decode  func(raw []byte) (unwind.Stack, error) // names Python's frames
	UserOf  func(pid uint32) uint32                // as in ledger.Process
	Store   *Store
	Defects *panics.List

	lost    atomic.Uint64
	running atomic.Bool // Run runs, so the ring is open
	waiting atomic.Bool // Run waits at an empty ring
}

// settleWithin is how long Settle waits; a stack is mostly read within a millisecond.
const settleWithin = 200 * time.Millisecond

// Settle waits, at most 0.2 s, until the stacks in the ring are in the store. It looks twice, 1 ms
// apart, because a stack that Run has just taken out may not be in the store yet.
func (r *Reader) Settle() {
	for end, empty := time.Now().Add(settleWithin), 0; r.running.Load() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if !r.waiting.Load() || r.Ring.AvailableBytes() > 0 {
			empty = 0
		} else if empty++; empty > 1 {
			return
		}
	}
}

const (
	// againInterval is how long parked stacks wait before they are tried again, and idleInterval
	// how long the reader sleeps otherwise: a new stack wakes it.
	againInterval = 10 * time.Millisecond
	idleInterval  = time.Second
)

// Run takes in new stacks until ctx ends, and then those that are still in the ring.
func (r *Reader) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = r.Ring.Flush() })()
	r.running.Store(true)
	defer r.running.Store(false)
	var record ringbuf.Record
	parked := parkedStacks{}
	defer func() { r.lost.Add(parked.finish(r.Take)) }()
	for {
		done := ctx.Err() != nil
		wait := idleInterval
		if parked.again(r.Take) {
			wait = againInterval
		}
		r.Ring.SetDeadline(time.Now().Add(wait))
		if done {
			r.Ring.SetDeadline(time.Now())
		}
		for {
			r.waiting.Store(r.Ring.AvailableBytes() == 0)
			err := r.Ring.ReadInto(&record)
			r.waiting.Store(false)
			if bpf.IsRingEmpty(err) {
				break
			}
			if err != nil {
				continue
			}
			if !r.Take(record.RawSample) {
				parked.add(record.RawSample)
			}
			if !done && ctx.Err() != nil {
				done = true
				r.Ring.SetDeadline(time.Now())
			}
		}
		if done {
			return
		}
	}
}

// Take keeps a stack as it came from the ring. It returns false if the unwinder cannot decode it
// yet: then the caller tries again later. A stack that cannot be decoded at all counts as lost.
func (r *Reader) Take(raw []byte) (taken bool) {
	lost := uint64(1)
	defer func() {
		if x := recover(); x != nil {
			r.Defects.Note("a stack", x)
			taken = true
		}
		r.lost.Add(lost)
	}()
	stack, err := r.Decode(raw)
	if errors.Is(err, unwind.ErrBusy) {
		lost = 0
		return false
	}
	if err == nil {
		r.Store.Add(stack, r.UserOf(stack.PID))
		lost = 0
	}
	return true
}

// Lost returns how many stacks could not be decoded, or found no room while they waited.
func (r *Reader) Lost() uint64 { return r.lost.Load() }

// parkedStacks are those of forked processes of which nothing else is known, and that cannot be
// asked since tables are being loaded.
type parkedStacks struct {
	list  [][]byte
	bytes int
	lost  uint64 // stacks that found no room here
}

// maxParked bounds parked stacks, in bytes: as much as the ring.
const maxParked = 8 << 20

func (p *parkedStacks) add(raw []byte) {
	if p.bytes+len(raw) > maxParked {
		p.lost++
		return
	}
	p.list = append(p.list, slices.Clone(raw))
	p.bytes += len(raw)
}

// again takes the parked stacks, and reports whether some are left.
func (p *parkedStacks) again(take func([]byte) bool) bool {
	for len(p.list) > 0 && take(p.list[0]) {
		p.bytes -= len(p.list[0])
		p.list[0] = nil
		p.list = p.list[1:]
	}
	return len(p.list) > 0
}

// parkedPatience is how long the end waits for tables that are being loaded.
const parkedPatience = 5 * time.Second

// finish takes the parked stacks, and returns how many could not be taken.
func (p *parkedStacks) finish(take func([]byte) bool) uint64 {
	for began := time.Now(); p.again(take) && time.Since(began) < parkedPatience; {
		time.Sleep(againInterval)
	}
	return p.lost + uint64(len(p.list))
}
