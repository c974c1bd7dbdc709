// SPDX-License-Identifier: Apache-2.0

package allocator

import "fmt"

// Code is why an allocator cannot be read.
type Code uint8

// Reasons.
const (
	NoLibrary    Code = iota + 1 // libc10_cuda is not mapped
	NoDevices                    // no list of allocators of devices
	NoTable                      // no table of active blocks
	NoBlocks                     // the containers are empty
	NoChain                      // no segment is divided: nothing proves the layout
	NoPool                       // no field leads from a block to its pool
	NoCounters                   // no counters equal the sums of the blocks
	Contradicted                 // the allocator was at rest, but blocks, sums or counters disagree
	TooMuch                      // above the limits on bytes or blocks
	OtherBackend                 // the object in use is of a class that is not known
	Uncounted                    // the backend keeps no counters
)

// Error reports that an allocator cannot be read.
type Error struct {
	Code   Code
	Blocks int    // that were looked at
	Bad    int    // of them, those that contradict
	Class  string // mangled: the process chooses it
}

func (e *Error) Error() string {
	const begin = "cannot read this allocator: "
	switch e.Code {
	case NoLibrary:
		return begin + "libc10_cuda is not loaded"
	case NoDevices:
		return begin + "no device's allocator found"
	case NoTable:
		return begin + "no table of active blocks found"
	case NoBlocks:
		return begin + "it holds no blocks (nothing allocated, or caching is off)"
	case NoChain:
		return begin + fmt.Sprintf("none of %d blocks proves the layout (no divided segment)", e.Blocks)
	case NoPool:
		return begin + fmt.Sprintf("no field of %d blocks leads to their pool", e.Blocks)
	case NoCounters:
		return begin + fmt.Sprintf("no counters equal the sums of %d blocks", e.Blocks)
	case Contradicted:
		return begin + fmt.Sprintf("%d of %d blocks, or their sums, contradict the rest", e.Bad, e.Blocks)
	case TooMuch:
		return begin + "it is larger than the limits on what is read"
	case OtherBackend:
		return begin + fmt.Sprintf("it is of an unknown class, %q", e.Class)
	case Uncounted:
		return begin + "its backend keeps no counters"
	}
	return begin + fmt.Sprintf("code %d", e.Code)
}
