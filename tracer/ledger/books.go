// SPDX-License-Identifier: Apache-2.0

package ledger

// Books takes all that a Ledger learns: the same calls in the same order make the same books. A Ledger is
// one; a recording is another. Callers must not change what they hand over, and a Books keeps no
// reference to it, but for the list of SetBlocks, which is a Ledger's from then on.
type Books interface {
	Begin(time uint64)
	Apply(e *Event)
	SetProcess(p Process)
	SetDevices(pid uint32, ordinals []string)
	SetGPUs(g []GPU)
	OpenUsage(time uint64)
	SetUsage(time uint64, usages []Usage)
	SetTensors(time uint64, totals []TensorTotals)
	SetBlocks(pid uint32, list []Block)
	SetSegments(stacks []uint64)
	SetSampling(p []float64)
	SetSampleRate(r SampleRate)
	SetStats(s Stats)
	SetLimits(x Limits)
	Warn(text string)
	WarnOf(pid uint32, text string)
}

var _ Books = (*Ledger)(nil)

// SetSegments says which stacks MarkSegments would be told are segments'.
func (l *Ledger) SetSegments(stacks []uint64) {
	if l.full() {
		return
	}
	is := make(map[uint64]bool, len(stacks))
	for _, stack := range stacks {
		is[stack] = true
	}
	l.MarkSegments(func(stack uint64) bool { return is[stack] })
}
