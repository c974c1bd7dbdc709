// SPDX-License-Identifier: Apache-2.0

package ledger

// ReadLimits bound what books take in that are filled from a file, which may be forged. 0 is no limit. A live
// session needs none: there the kernel half has room for so much only.
type ReadLimits struct {
	Live, Sites, Processes, Tensors uint64 // that may be live, or be made; Tensors: allocators, one of each process and device
	Steps                           uint64 // of work beyond what each event takes: through sites, blocks or processes, a few ns each

	// Reached is told, once. From then on the books stay as they are.
	Reached func(Limit)
}

// Limit is one of ReadLimits.
type Limit uint8

const (
	LimitLive Limit = iota + 1
	LimitSites
	LimitProcesses
	LimitTensors
	LimitSteps
)

// limiter counts what ReadLimits are about.
type limiter struct {
	ReadLimits
	on      bool // there are any
	reached bool
	sites   uint64 // that were made
	tensors uint64
	steps   uint64
}

// full says whether the books take in nothing more.
func (l *Ledger) full() bool {
	x := &l.limiter
	if !x.on || x.reached {
		return x.reached
	}
	for _, c := range [...]struct {
		limit Limit
		n, of uint64
	}{
		{LimitLive, uint64(len(l.live)), x.Live}, {LimitSites, x.sites, x.Sites}, {LimitProcesses, uint64(len(l.procs)), x.Processes},
		{LimitTensors, x.tensors, x.Tensors}, {LimitSteps, x.steps, x.Steps},
	} {
		if c.of != 0 && c.n > c.of {
			x.reached = true
			x.Reached(c.limit)
			break
		}
	}
	return x.reached
}

// spend counts steps of work.
func (l *Ledger) spend(steps int) { l.limiter.steps += uint64(steps) }
