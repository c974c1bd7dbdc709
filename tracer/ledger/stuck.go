// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
)

// Stuck is the part of the cache of one of PyTorch's allocators that it cannot give back to the
// driver: a segment goes back only when no block of it lives. Of memory of the virtual memory API
// (expandable segments), each mapping goes back by itself, and counts as a segment here.
//
// It is of segments allocated since the attach: Free + Idle = Tensors.Cached, unless the blocks
// outside of the sample were listed at another moment. Then the sum is at most Cached. If the
// allocator was read, with certainty, at most 10 s before, all is of that moment and all segments.
type Stuck struct {
	Process int
	Device  int32

	Segments uint64 // with live blocks and free memory
	Bytes    uint64 // of these segments
	Free     uint64 // part of Bytes that is in no block
	Idle     uint64 // bytes of segments without a live block, which the allocator can give back
	Sets     []StuckSet

	Listed   uint64 // when the blocks outside of the sample were listed; 0: never
	Unlisted uint64 // bytes of live blocks whose place is not known
	Outdated uint64 // bytes of blocks that were listed, and freed since
	Read     uint64 // when the allocator was read; 0: it was not
	Cached   uint64 // if it was read: its whole cache then

	units  []stuckUnit
	blocks []stuckBlock // by address
	stacks stuckStacks
}

// StuckSet is the segments whose live blocks are of the same stacks and holders. The sets of an
// allocator add up to its figures.
type StuckSet struct {
	Segments, Bytes, Free uint64
	By                    []StuckBy // by bytes, largest first, at most maxStuckBy
	More                  uint64    // bytes of blocks of others
}

// StuckBy is the blocks in the segments of a set that one stack allocated and one holder keeps.
type StuckBy struct {
	Sampled       bool // otherwise Stack and API are unknown
	Older         bool // not Sampled, as they are from before the attach
	Stack         uint64
	API           string
	Holder        int    // index into Held of the process's latest Walked; -1: unknown
	Blocks, Bytes uint64 // a block that lies in several mappings counts in the first
}

// maxStuckBy bounds the stacks and holders of a set. Segments with more are mostly small tensors.
const maxStuckBy = 64

// stuckUnit is a segment with live blocks and free memory, [first, last) of Stuck.blocks.
type stuckUnit struct {
	size, free  uint64
	first, last uint32
}

// stuckBlock is the part of a live block that lies in one segment.
type stuckBlock struct {
	address, size, time uint64 // of the block; time is 0 outside of the sample
	bytes               uint64 // inside
	stack               uint32 // index into stuckStacks
}

// stuckStacks are the stacks of a process's blocks. The first is that of blocks outside of the
// sample, the second that of older blocks.
type stuckStacks []stuckStack

type stuckStack struct {
	stack uint64
	api   string
}

const (
	unsampledStack = iota
	olderStack
	firstStack
)

// keepList keeps a sorted list of blocks for AddStuck. It belongs to the ledger.
func (p *torch) keepList(list []Block) {
	sampled := 0
	for i := range p.tensors {
		if p.tensors[i].device != CPUDevice {
			sampled += int(p.tensors[i].sampled)
		}
	}
	p.dropList()
	if p.walks != nil {
		p.walks.gaveOutAll(list)
	}
	p.blockList.time = p.newest
	if len(list) != sampled && p.listedBlocks+len(list) <= maxListed {
		p.listedBlocks += len(list)
		p.blockList.blocks = list
	}
}

func (p *torch) dropList() {
	p.listedBlocks -= len(p.blockList.blocks)
	p.blockList.blocks, p.blockList.freed = nil, nil
}

// noteListedFreed notes that a block of the sample was freed, which the list may have. With too
// many of them, the list is of no use any more.
func (p *torch) noteListedFreed(address uint64) {
	switch x := &p.blockList; {
	case len(x.blocks) == 0:
	case len(x.freed) >= maxFreed:
		p.dropList()
	default:
		x.freed = append(x.freed, address)
	}
}

// unsampled returns the blocks of the list that were not in the sample, by address. Those that are
// in it now may be among them. A listed block of a size that is always in the sample was freed
// while the list was read, unless events of the process are lost.
func (p *torch) unsampled() []Block {
	x := &p.blockList
	freed := slices.Clone(x.freed)
	slices.Sort(freed)
	halved := slices.ContainsFunc(p.tensors, func(t tensors) bool { return t.halvings > 0 })
	kept := make([]Block, 0, len(x.blocks))
	for _, b := range x.blocks {
		for len(freed) > 0 && freed[0] < b.Address {
			freed = freed[1:]
		}
		always := p.Lost == 0 && p.inclusion(SizeClass(b.Size)) >= 1 && (!halved || b.Size >= p.rate.Mean)
		if !always && (len(freed) == 0 || freed[0] != b.Address) {
			kept = append(kept, b)
		}
	}
	return kept
}

// addStuck adds what is stuck of one process's allocators.
func (p *process) addStuck(s *Snapshot, index int) {
	uuids, _ := p.ordinals()
	only, _ := p.onlyGPU(uuids)
	at := map[int32]*Stuck{}
	read := p.addStuckRead(s, index)
	for i := range p.tensors {
		t := &p.tensors[i]
		if read[t.device] {
			continue
		}
		if x := s.TensorsOn(index, t.device); x != nil && t.device >= 0 && t.now.reserved != 0 && x.Cached+x.OlderCached > 0 { // otherwise blocks have no addresses
			at[t.device] = &Stuck{Process: index, Device: t.device, Listed: p.blockList.time}
		}
	}
	if len(at) == 0 {
		return
	}
	p.findStuck(only, at)
	for device, x := range at {
		x.fit(s.TensorsOn(index, device))
		x.divide(p)
		s.Stuck = append(s.Stuck, *x)
	}
}

// findStuck finds the segments of each device, and the blocks in them. A segment on an unknown
// device is on the only one.
func (p *process) findStuck(only int32, at map[int32]*Stuck) {
	extents := p.extents()
	blocks, stacks := p.blocksOf()
	for _, x := range at {
		x.stacks = stacks
		x.blocks = make([]stuckBlock, 0, len(blocks)/len(at))
	}
	pieces := blockPieces{blocks: blocks}
	for i := range extents {
		x := &extents[i]
		site := p.sites[x.site]
		device := site.device
		if device == UnknownDevice {
			device = only
		}
		to := at[device]
		if to == nil || !site.segment {
			continue
		}
		u := stuckUnit{size: x.end - x.start, first: uint32(len(to.blocks))}
		u.free = u.size
		for b := pieces.next(x); b != nil; b = pieces.next(x) {
			if b.time == 0 && x.time > p.blockList.time { // it was freed, and so was the segment that it was in
				to.Outdated += b.bytes
				continue
			}
			u.free -= b.bytes
			to.blocks = append(to.blocks, *b)
		}
		to.add(&u)
	}
}

// blockPieces walks through blocks in order of their addresses, as cursor does.
type blockPieces struct {
	blocks []stuckBlock
	i      int
	at     uint64
}

// next returns the next block that lies in x, with the bytes inside, or nil.
func (p *blockPieces) next(x *extent) *stuckBlock {
	for ; p.i < len(p.blocks); p.i++ {
		b := &p.blocks[p.i]
		start, end := span(b.address, b.size)
		from := max(start, x.start, p.at)
		if from >= x.end {
			return nil
		}
		if end > from {
			p.at = min(end, x.end)
			b.bytes = p.at - from
			return b
		}
	}
	return nil
}

// add adds a segment whose blocks are the last ones.
func (x *Stuck) add(u *stuckUnit) {
	u.last = uint32(len(x.blocks))
	switch {
	case u.first == u.last:
		x.Idle += u.size
	case u.free == 0:
		x.blocks = x.blocks[:u.first]
	default:
		x.units = append(x.units, *u)
		x.Segments++
		x.Bytes += u.size
		x.Free += u.free
	}
}

// blocksOf returns the live blocks of a process on its GPUs by address: those of the sample, and
// the others as they were listed last.
func (p *process) blocksOf() ([]stuckBlock, stuckStacks) {
	sampled, stacks := p.sampledBlocks()
	p.spend(8 * len(p.blockList.blocks))
	others := p.unsampled()
	if len(others) == 0 {
		return sampled, stacks
	}
	list := make([]stuckBlock, 0, max(len(sampled), len(others)))
	for _, b := range others {
		for len(sampled) > 0 && sampled[0].address < b.Address {
			list, sampled = append(list, sampled[0]), sampled[1:]
		}
		if len(sampled) == 0 || sampled[0].address != b.Address { // otherwise another block has its address
			list = append(list, stuckBlock{address: b.Address, size: b.Size})
		}
	}
	return append(list, sampled...), stacks
}

// sampledBlocks returns the live blocks of the sample on GPUs, by address.
func (p *process) sampledBlocks() ([]stuckBlock, stuckStacks) {
	stacks, at := make(stuckStacks, firstStack), map[stuckStack]uint32{}
	most := uint64(0)
	for i := range p.tensors {
		most += p.tensors[i].sampled
	}
	sampled := make([]stuckBlock, 0, most)
	for s := range p.all() {
		if s.kind != Tensor || s.device == CPUDevice {
			continue
		}
		of := stuckStack{s.stack, s.api}
		stack, ok := at[of]
		if !ok {
			stack = uint32(len(stacks))
			at[of] = stack
			stacks = append(stacks, of)
		}
		for e := s.first; e != 0; {
			b := p.entries.at(e)
			sampled = append(sampled, stuckBlock{address: b.address, size: b.size, time: max(b.time, 1), stack: stack})
			e = b.next
		}
	}
	p.spend(len(p.sites) + 32*len(sampled))
	slices.SortFunc(sampled, func(a, b stuckBlock) int { return cmp.Compare(a.address, b.address) })
	return sampled, stacks
}

// fit compares what was found with the allocator's own totals, and makes it at most as much.
func (x *Stuck) fit(t *Tensors) {
	if found := x.Free + x.Idle; found > t.Cached {
		x.Unlisted = found - t.Cached
	} else {
		x.Outdated += t.Cached - found
	}
	if x.Free > t.Cached {
		free := make([]uint64, len(x.units))
		for i := range x.units {
			free[i] = x.units[i].free
		}
		free, _ = apportion(t.Cached, free)
		for i := range x.units {
			x.units[i].free = free[i]
		}
		x.Free = t.Cached
	}
	x.Idle = min(x.Idle, t.Cached-x.Free)
}
