// SPDX-License-Identifier: Apache-2.0

package ledger

// Glance has the sums of the books at a moment, which take no snapshot.
type Glance struct {
	Processes int // that have not ended
	// GPU memory that they hold: tensors where PyTorch reports them, else allocations since the
	// attach.
	Live uint64
	Lost uint64 // Stats.Lost
}

// Glance returns sums of the books. Its duration grows with the processes that have not ended.
func (l *Ledger) Glance() Glance {
	g := Glance{Lost: l.stats.Lost}
	l.eachAlive(func(p *process) {
		g.Processes++
		g.Live += p.measured()
	})
	return g
}

// Measured returns the GPU memory of a process, as Glance.Live counts it.
func (l *Ledger) Measured(pid uint32) uint64 {
	if p := l.byPID[pid]; p != nil {
		return p.measured()
	}
	return 0
}
