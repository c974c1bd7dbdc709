// SPDX-License-Identifier: Apache-2.0

package ledger

// Books takes all that a Ledger learns: the same calls in the same order make the same books. A Ledger is
// one; the writer of a capture is another. Callers must not change what they hand over, and a Books keeps
// no reference to it, except for BlockList.Blocks, which belongs to the Ledger afterwards.
type Books interface {
	Apply(e *Event)
	Tell(in Input)
}

var _ Books = (*Ledger)(nil)

// Input is anything but an event that a Ledger learns. The types are those in this file,
// Process, SampleRate, Stats and Limits.
type Input interface{ tell(l *Ledger) }

// Tell books an input.
func (l *Ledger) Tell(in Input) { in.tell(l) }

// Begin sets the time from which the session counts, when it is later than Options.Begin.
// It must come before the first event.
type Begin struct{ Time uint64 }

// Devices has the UUID of each CUDA ordinal of a known process. If one GPU alone carries the
// process, snapshots show its allocations with UnknownDevice there.
type Devices struct {
	PID   uint32
	UUIDs []string
}

// GPUs replaces the list of GPUs.
type GPUs []GPU

// UsageOpened marks the beginning of a reading of NVML, whose end is a UsageReading.
type UsageOpened struct{ Time uint64 }

// UsageReading is what NVML reports of processes, as of a time.
type UsageReading struct {
	Time   uint64
	Usages []Usage
}

// TensorReading has the totals of PyTorch's allocators, as of a time.
type TensorReading struct {
	Time   uint64
	Totals []TensorTotals
}

// BlockList has all live blocks of PyTorch that a process has on its GPUs, sampled or not.
type BlockList struct {
	PID    uint32
	Blocks []Block
}

// Segments lists the stacks for which MarkSegments would be told that they are those of segments.
type Segments []uint64

// Sampling is the probability with which a block of each size class is in the sample.
// Classes that the list does not have are sampled whole.
type Sampling []float64

// Warning is a sentence for all later snapshots. With a PID it takes from the share of that process.
type Warning struct {
	PID  uint32 // 0: of the session
	Text string
}

func (in Begin) tell(l *Ledger)         { l.options.Begin = in.Time }
func (in Process) tell(l *Ledger)       { l.setProcess(in) }
func (in Devices) tell(l *Ledger)       { l.setDevices(in.PID, in.UUIDs) }
func (in GPUs) tell(l *Ledger)          { l.gpus = append(l.gpus[:0], in...) }
func (in UsageOpened) tell(l *Ledger)   { l.openUsage() }
func (in UsageReading) tell(l *Ledger)  { l.setUsage(in.Time, in.Usages) }
func (in TensorReading) tell(l *Ledger) { l.setTensors(in.Time, in.Totals) }
func (in BlockList) tell(l *Ledger)     { l.setBlocks(in.PID, in.Blocks) }
func (in Segments) tell(l *Ledger)      { l.setSegments(in) }
func (in Sampling) tell(l *Ledger)      { l.setSampling(in) }
func (in SampleRate) tell(l *Ledger)    { l.setSampleRate(in) }
func (in Stats) tell(l *Ledger)         { l.setStats(in) }
func (in Limits) tell(l *Ledger)        { l.setLimits(in) }

func (in Warning) tell(l *Ledger) {
	if in.PID != 0 {
		l.warnOf(in.PID, in.Text)
	} else {
		l.warn(in.Text)
	}
}

func (l *Ledger) setSegments(stacks []uint64) {
	if l.full() {
		return
	}
	is := make(map[uint64]bool, len(stacks))
	for _, stack := range stacks {
		is[stack] = true
	}
	l.MarkSegments(func(stack uint64) bool { return is[stack] })
}
