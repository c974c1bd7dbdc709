// SPDX-License-Identifier: Apache-2.0

package allocsim

import (
	"fmt"
	"math/bits"
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

// RulesOf returns the rules of a version such as "2.6.0+cu124". A version that was not compared with
// the simulator is an error: its replay would be a guess.
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

// round returns the size of the block that a request gets, at most about twice the request.
func (s *Settings) round(size uint64) uint64 {
	if size < minBlock {
		return minBlock
	}
	// Sizes below 2 MiB are of the first interval, those from 32 GiB of the last.
	log := bits.Len64(size) - 1
	d := uint64(s.Divisions[min(max(log-20, 0), divisionSizes-1)])
	if d <= 1 || size <= minBlock*d {
		return (size + minBlock - 1) &^ (minBlock - 1)
	}
	if size&(size-1) == 0 {
		return size
	}
	part := uint64(1) << log >> (bits.Len64(d) - 1)
	if part == 0 {
		return 2 << log
	}
	return (size + part - 1) &^ (part - 1)
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
