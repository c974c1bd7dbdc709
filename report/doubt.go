// SPDX-License-Identifier: Apache-2.0

package report

// Figure names the figure of a report that a doubt is about.
type Figure int

const (
	AtTotals Figure = iota
	AtStacks
	AtBalance
	AtTitle
	AtHolders   // of processes whose memory was read
	AtNoHolders // of the others
)

// AboutHolders reports whether the figure is what somebody keeps.
func (f Figure) AboutHolders() bool { return f == AtHolders || f == AtNoHolders }

// Doubt is one sentence about what the ledger could not account for.
type Doubt struct {
	At   Figure
	Text string
}
