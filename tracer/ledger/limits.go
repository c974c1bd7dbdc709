// SPDX-License-Identifier: Apache-2.0

package ledger

// ReadLimits bound the size of books that a file fills, since the file may be forged. 0 is no
// limit. A live session needs none: the kernel half bounds what it reports.
type ReadLimits struct {
	// Most live allocations; most sites, processes and PyTorch allocators that have not been
	// forgotten.
	Live, Sites, Processes, Tensors uint64
	// Work beyond a fixed amount per event, in steps of a few ns.
	Steps uint64

	// Reached is called once, when a limit is exceeded. From then on the books do not change.
	Reached func(Limit)
}

// Limit names one of the ReadLimits.
type Limit uint8

const (
	LimitLive Limit = iota + 1
	LimitSites
	LimitProcesses
	LimitTensors
	LimitSteps
)

// limiter counts against ReadLimits.
type limiter struct {
	ReadLimits
	on      bool // there are limits
	reached bool
	sites   uint64 // made so far, less those of processes that left the books
	tensors uint64
	steps   uint64
}
