// SPDX-License-Identifier: Apache-2.0

package ledger

// Books takes everything that a Ledger learns: the same calls in the same order make the same
// books. A Ledger is one; the writer of a capture is another. Afterwards the lists in a BlockList,
// an AllocatorReading and a Walk belong to the Ledger, and must not change. A Books keeps no other
// reference to its arguments.
type Books interface {
	Apply(e *Event)
	Tell(in Input)
}

var _ Books = (*Ledger)(nil)

// Input is anything that a Ledger learns except events. Its types are those in this file, Process,
// SampleRate, Stats, Limits, SystemReading, WalkOpened, Walk, AllocatorReading and Untraced.
type Input interface{ tell(l *Ledger) }

// Tell books an input.
func (l *Ledger) Tell(in Input) {
	if l.carrying {
		if _, more := in.(Carried); !more {
			l.endOpening(false)
		}
	}
	in.tell(l)
}

// Begin sets the begin of the session in place of Options.Begin. It must come before the first
// event.
type Begin struct{ Time uint64 }

// Devices has the UUID of each CUDA ordinal of a known process. If the process uses one GPU only,
// snapshots show its allocations with UnknownDevice on that GPU.
type Devices struct {
	PID   uint32
	UUIDs []string
}

// GPUs replaces the list of GPUs.
type GPUs []GPU

// UsageOpened marks the begin of a reading of NVML. The next UsageReading ends it.
type UsageOpened struct{ Time uint64 }

// UsageReading has what NVML reports about processes at a time.
type UsageReading struct {
	Time   uint64
	Usages []Usage
}

// TensorReading has the totals of PyTorch's allocators at a time.
type TensorReading struct {
	Time   uint64
	Totals []TensorTotals
}

// BlockList has all live blocks of a process on its GPUs, in the sample or not.
type BlockList struct {
	PID    uint32
	Blocks []Block
}

// Segments lists stacks of calls that allocated segments of PyTorch: see MarkSegments.
type Segments []uint64

// Sampling has the probability of each size class with which its blocks are in the sample. All
// blocks of further classes are.
type Sampling []float64

// Warning is a sentence for all later snapshots. With a PID it counts against the warnings of that
// process: see quota.Quota.
type Warning struct {
	PID  uint32 // 0: of the session
	Text string
}

// Forget has processes that ended before a time leave the books, with everything that is known of
// them: Snapshot.Forgotten sums them. A process stays at least 5 s, in which late events may come;
// those that come later count as another process's.
type Forget struct{ Before uint64 }

// Fold has sites with fewer live bytes than Below lose their stack: their figures become part of
// the site without a stack of the same process, device, kind and API. No sum changes. Imported
// memory and what may be a segment of PyTorch keep their stacks.
type Fold struct {
	PID   uint32 // the newest process with it; 0: all processes that have not ended
	Below uint64
}

func (in Begin) tell(l *Ledger)         { l.options.Begin = in.Time }
func (in Process) tell(l *Ledger)       { l.setProcess(in) }
func (in GPUs) tell(l *Ledger)          { l.gpus.list = append(l.gpus.list[:0], in...) }
func (in UsageOpened) tell(l *Ledger)   { l.openUsage() }
func (in UsageReading) tell(l *Ledger)  { l.setUsage(in.Time, in.Usages) }
func (in TensorReading) tell(l *Ledger) { l.setTensors(in.Time, in.Totals) }
func (in Sampling) tell(l *Ledger)      { l.setSampling(in) }
func (in SampleRate) tell(l *Ledger)    { l.rate = in }
func (in Stats) tell(l *Ledger)         { l.setStats(in) }
func (in Limits) tell(l *Ledger)        { l.setLimits(in, l.numbers > 0) }
func (in Forget) tell(l *Ledger)        { l.forget(in.Before) }
func (in Fold) tell(l *Ledger)          { l.fold(in.PID, in.Below) }
func (in Carried) tell(l *Ledger)       { l.takeCarried(&in) }

func (in BlockList) tell(l *Ledger) {
	if p := l.byPID[in.PID]; p != nil && !p.purged && !l.full() {
		p.setBlocks(in.Blocks)
	}
}

func (in Walk) tell(l *Ledger) {
	if p := l.walkOf(in.PID, in.Time); p != nil && len(in.Storages) <= maxStorages {
		p.addWalk(&in)
	}
}

func (in Devices) tell(l *Ledger) {
	if p := l.byPID[in.PID]; p != nil {
		p.devices, p.misnamed = append([]string(nil), in.UUIDs...), false
	}
}

func (in WalkOpened) tell(l *Ledger) {
	if p := l.walkOf(in.PID, in.Time); p != nil {
		p.openWalk(in.Time)
	}
}

func (in Warning) tell(l *Ledger) {
	if p := l.byPID[in.PID]; p != nil && in.PID != 0 {
		p.warnOf(in.Text)
	} else {
		l.warn(in.Text)
	}
}

func (in Segments) tell(l *Ledger) {
	if l.full() {
		return
	}
	is := make(map[uint64]bool, len(in))
	for _, stack := range in {
		is[stack] = true
	}
	l.MarkSegments(func(stack uint64) bool { return is[stack] })
}

// Carried is a piece of the books of another ledger. Opening tells the pieces in order. Only a
// ledger can read Data, which refers to Stacks and Texts by index.
//
// A ledger takes pieces only before its first event. It checks them, and ignores all further ones
// once one is missing or does not fit: then Snapshot.Warnings has a sentence.
type Carried struct {
	Piece  uint32 // counts the pieces of an opening from 0
	Stacks []uint64
	Texts  []string // untrusted
	Data   []byte
}

// PyTorch is the version of a process's PyTorch, and the settings of its CUDA allocator at a time.
// Captures have it for replays of the allocator; it changes no books.
type PyTorch struct {
	PID      uint32
	Time     uint64
	Version  string // "2.6.0"; empty: unknown
	Settings string // as in PYTORCH_CUDA_ALLOC_CONF
	InUse    bool   // Settings were read from the allocator; else they are the environment's
}

func (in PyTorch) tell(*Ledger) {}
