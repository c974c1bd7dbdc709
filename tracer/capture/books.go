// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math"
	"slices"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// NewLedger returns an empty ledger in its state at the begin of the session, for a Player to fill.
func (r *Reader) NewLedger() *ledger.Ledger {
	return ledger.New(ledger.Options{Begin: r.begin, Host: r.host, Limits: r.limits()})
}

// limits returns the ledger's limits for this file.
func (r *Reader) limits() ledger.ReadLimits {
	if r.options.Unlimited {
		return ledger.ReadLimits{}
	}
	return ledger.ReadLimits{
		Live: liveLimit.of(r.size), Sites: siteLimit.of(r.size), Processes: processLimit.of(r.size), Tensors: tensorsLimit.of(r.size), Steps: stepLimit.of(r.size),
		Reached: func(which ledger.Limit) {
			r.Stop(map[ledger.Limit]limit{
				ledger.LimitLive: liveLimit, ledger.LimitSites: siteLimit, ledger.LimitProcesses: processLimit,
				ledger.LimitTensors: tensorsLimit, ledger.LimitSteps: stepLimit,
			}[which].exceeded(r.size))
		},
	}
}

// Play gives books all inputs up to a moment.
func (r *Reader) Play(to uint64, books ledger.Books) error { return r.Player().PlayTo(to, books) }

// Snapshot plays the capture up to a moment and returns a snapshot, with the walks of each process
// that are nearest to the moment, which may be later. From End on, it has the final state,
// including warnings.
func (r *Reader) Snapshot(at uint64) (*ledger.Snapshot, error) {
	to := at
	if at >= r.End() {
		to = math.MaxUint64
	}
	l, p, err := r.booksAt(to)
	if err != nil {
		return nil, err
	}
	s := r.SnapshotOf(l, at)
	l.AddStuck(s)
	l.AddPeaks(s)
	later := laterWalks{Ledger: l, s: s, told: map[uint32]bool{}}
	var reach uint64
	for i := range s.Processes {
		reach = max(reach, later.reach(i))
	}
	if later.next, err = r.walksAfter(at, s.End+reach); err != nil {
		return nil, err
	}
	for until := later.until(r.End()); until > at; until = later.until(r.End()) {
		if err := p.PlayTo(until, &later); err != nil {
			return nil, err
		}
		at = until
	}
	return s, nil
}

// booksAt returns books with all inputs up to a moment, and the Player that gave them these: from
// the newest checkpoint on or, if it is malformed, from the begin.
func (r *Reader) booksAt(time uint64) (*ledger.Ledger, *Player, error) {
	l, p := r.NewLedger(), r.Player()
	if c := r.checkpoints.before(time); c != nil {
		switch restored, err := p.restore(c, l); {
		case err != nil:
			return nil, nil, err
		case !restored:
			l, p = r.NewLedger(), r.Player()
		}
	}
	return l, p, p.PlayTo(time, l)
}

// SnapshotOf returns a snapshot of a ledger that a Player has filled up to a moment, with the
// capture's warnings.
func (r *Reader) SnapshotOf(l *ledger.Ledger, at uint64) *ledger.Snapshot {
	s := r.taken(l, at, l.Snapshot)
	if r.end != nil {
		known := make(map[string]bool, len(s.Warnings)+len(r.endings))
		for _, text := range s.Warnings {
			known[text] = true
		}
		for _, text := range r.endings {
			if !known[text] {
				known[text] = true
				s.Warnings = append(s.Warnings, text)
			}
		}
	}
	s.Warnings = append(s.Warnings, r.Warnings()...)
	return s
}

// Warnings lists what is missing in the part of the capture that has been read.
func (r *Reader) Warnings() []string {
	list := r.missing.warnings(r.begin)
	if r.end == nil {
		list = append(list, "the capture is incomplete (still being written, its disk was full, or vramprof was killed): it ends at "+since(r.begin, max(r.last, r.begin)))
	}
	return list
}

// HasGaps reports whether events or readings are missing between the begin and the end of what has
// been read.
func (r *Reader) HasGaps() bool { return !r.missing.none() }

// LevelsOf is SnapshotOf for one of many moments in a chart: see ledger.Ledger.Levels. It has no
// warnings.
func (r *Reader) LevelsOf(l *ledger.Ledger, at uint64) *ledger.Snapshot {
	return r.taken(l, at, l.Levels)
}

func (r *Reader) taken(l *ledger.Ledger, at uint64, take func(uint64, time.Time) *ledger.Snapshot) *ledger.Snapshot {
	at = min(max(at, r.begin), r.End())
	l.MarkSegments(r.isSegment) // captures contain the marks only at intervals
	return take(at, r.Wall(at))
}

// isSegment reports whether PyTorch's allocator took the memory that this stack allocated.
func (r *Reader) isSegment(stack uint64) bool {
	is, known := r.stacks.isSegment(stack)
	if known {
		return is
	}
	is = slices.ContainsFunc(r.Stack(stack), func(f callstack.Frame) bool {
		return f.Mapping != nil && callstack.IsTorchAllocator(f.Mapping.Path)
	})
	r.stacks.noteSegment(stack, is)
	return is
}
