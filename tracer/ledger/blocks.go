// SPDX-License-Identifier: Apache-2.0

package ledger

// Block is a live block of PyTorch's allocator.
type Block struct {
	Address, Size uint64
	Device        int32 // CUDA ordinal
	Sampled       bool  // it has an event of its own; unknown in captures
}

// extent is a range of addresses that leads to memory of a site.
type extent struct {
	start, end uint64
	time       uint64 // of the allocation or mapping
	site       uint32
	mapped     bool // it is mapped by the virtual memory API
}

// cursor walks through blocks in order of their addresses.
type cursor struct {
	blocks []Block
	i      int
	at     uint64 // next has returned everything below
}

// next returns the next piece of a block that lies in x. The extents must come in order.
func (c *cursor) next(x *extent) (from, to uint64, ok bool) {
	for ; c.i < len(c.blocks); c.i++ {
		start, end := span(c.blocks[c.i].Address, c.blocks[c.i].Size)
		from := max(start, x.start, c.at)
		if from >= x.end {
			return 0, 0, false
		}
		if end > from {
			c.at = min(end, x.end)
			return from, c.at, true
		}
	}
	return 0, 0, false
}

// freeRun is the longest run of free bytes in the segments of one device.
type freeRun struct {
	device int32
	bytes  uint64
}

// blockList has the live blocks of a process as they were listed last, and those of the sample that
// were freed since.
type blockList struct {
	blocks []Block // by address; nil if all are in the sample
	freed  []uint64
	time   uint64 // of the list; 0: there was none
}
