// SPDX-License-Identifier: Apache-2.0

package ledger

// sum sums something over all processes.
func sum(l *Ledger, of func(p *process) int) (n int) {
	for _, p := range l.procs {
		n += of(p)
	}
	return n
}

func liveIn(l *Ledger) int { return sum(l, func(p *process) int { return len(p.live) }) }

func sitesIn(l *Ledger) int { return sum(l, func(p *process) int { return len(p.siteOf) }) }

func failuresIn(l *Ledger) int { return sum(l, func(p *process) int { return len(p.failures) }) }

func freesIn(l *Ledger) int { return sum(l, func(p *process) int { return len(p.lastFree) }) }

func releasesIn(l *Ledger) int { return sum(l, func(p *process) int { return len(p.released) }) }

// moveAll moves the entries of all processes.
func moveAll(l *Ledger) {
	for _, p := range l.procs {
		p.moveEntries()
		p.forgetNeighbors()
	}
}
