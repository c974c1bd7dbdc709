// SPDX-License-Identifier: Apache-2.0

package allocsim

import (
	"fmt"
	"strings"
)

const (
	mib = 1 << 20

	minBlock    = 512      // every block is a multiple
	smallSize   = mib      // the largest block in a small segment
	smallBuffer = 2 * mib  // a small segment
	largeBuffer = 20 * mib // a segment for blocks below minLarge
	minLarge    = 10 * mib
	roundLarge  = 2 * mib

	// No GPU has as much. Larger sizes run out of memory, and sums of the others cannot overflow.
	maxSize     = uint64(1) << 39
	maxReserved = uint64(1) << 50
)

// Rules are the decisions in which versions of PyTorch differ.
type Rules struct {
	Version string // "2.6"
	// Expandable: the version has expandable_segments.
	Expandable bool
}

// proven are the versions whose allocator was compared with the simulator on the real PyTorch:
// scripts/whatif-check.sh, docs/accuracy.md.
var proven = []Rules{{Version: "2.6", Expandable: true}}

// RulesOf returns the rules of a version such as "2.6.0+cu124". A version that was not compared
// with the simulator is an error: its replay would be a guess.
func RulesOf(version string) (Rules, error) {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	minor, _, _ = strings.Cut(minor, "+")
	for _, r := range proven {
		if r.Version == major+"."+minor {
			return r, nil
		}
	}
	if version == "" {
		return Rules{}, fmt.Errorf("the version of PyTorch is unknown")
	}
	return Rules{}, fmt.Errorf("the allocator of PyTorch %.20q is not among those proven: %s", version, Proven())
}

// Proven lists the versions that RulesOf knows, such as "2.6".
func Proven() string {
	var all []string
	for _, r := range proven {
		all = append(all, r.Version)
	}
	return strings.Join(all, ", ")
}

// segmentSize returns the size of the segment that a block of a size is cut from.
func segmentSize(size uint64) uint64 {
	switch {
	case size <= smallSize:
		return smallBuffer
	case size < minLarge:
		return largeBuffer
	}
	return (size + roundLarge - 1) / roundLarge * roundLarge
}
