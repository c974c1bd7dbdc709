// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

// Ledger holds the books. It must be used from one goroutine at a time.
//
// Each process keeps its own books; the ledger has what is between processes. It keeps processes
// until Forget, since a capture shows them at its end. Those that ended take less memory.
type Ledger struct {
	*session
	procs   []*process          // in the order in which they began
	byPID   map[uint32]*process // the newest process of a pid
	alive   []*process          // processes that had not ended at the last eachAlive
	ended   []*process          // processes that ended and still have their entries
	purgeAt uint64              // when the first of them loses them
	numbers uint32              // how many processes there were
	ofUser  map[uint32]int      // processes by user; 0: not known
	gone    forgotten           // sums of the processes that left the books
	lost    losses

	gpus gpuList

	follows  bool     // AddHighest was called: new processes have their highest from their begin on
	opening  *opening // nil before the first Carried
	carrying bool     // the pieces of an opening are coming
	openedAt uint64   // Snapshot.Opened
}

// New returns empty books.
func New(o Options) *Ledger {
	if o.MaxLive <= 0 {
		o.MaxLive = defaultMaxLive
	}
	if o.maxProcesses <= 0 {
		o.maxProcesses = defaultMaxProcesses
	}
	return &Ledger{
		session: newSession(o),
		byPID:   make(map[uint32]*process),
		purgeAt: math.MaxUint64,
		ofUser:  make(map[uint32]int),
		lost:    losses{events: make(map[uint32]uint64), stacks: make(map[uint32]uint64)},
		gpus:    gpuList{used: make(map[string]*usedMarks)},
	}
}

// Apply books one event; it keeps no reference to e. It allocates memory only for new processes and
// sites, and for more live allocations than ever before.
func (l *Ledger) Apply(e *Event) {
	if l.limiter.on && l.full() {
		return
	}
	if l.carrying {
		l.endOpening(false)
	}
	l.stats.Events++
	l.newest = max(l.newest, e.Time)
	if e.Time >= l.purgeAt {
		l.purge(e.Time)
	}
	if e.Kind > lastKind || e.Kind == aliased || e.Space > lastSpace || e.Space == memories {
		return
	}
	if l.manyProcesses() && !l.hasRoom(e.PID, e.Time, 0) {
		if e.Op != Exit && e.Op != Exec {
			l.lost.homeless++
			l.stats.Lost++
		}
		return
	}
	switch e.Op {
	case Exec, Exit:
		l.end(e)
	case FreeFailed:
		if p := l.known(e.PID, e.Time); p != nil {
			p.freeFailed(e)
		}
	case OutOfMemory:
		l.stats.Events-- // it comes in addition to the event of the call
		if p := l.byPID[e.PID]; p != nil && (p.End == 0 || e.Time <= p.End) {
			p.outOfMemory(e)
		}
	case Learn:
		l.stats.Events-- // likewise
		l.instance(e.PID, e.Time).learn(e)
	default:
		if !e.isVoid() {
			l.instance(e.PID, e.Time).apply(e)
		}
	}
}
