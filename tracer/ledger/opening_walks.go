// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/codec"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// blocks tells the blocks that were listed outside of the sample.
func (o *opener) blocks(p *process) {
	x := &p.blockList
	if len(x.blocks) == 0 {
		return
	}
	list := x.freed
	o.beginOf(carriedBlocks, p)
	codec.List(o.Codec, &list, maxFreed, func(address *uint64) { codec.Num(o.Codec, address) })
	rest := x.blocks
	for first := true; len(rest) > 0; first = false {
		if !first {
			o.beginOf(carriedBlocks, p)
			none := []uint64(nil)
			codec.List(o.Codec, &none, maxFreed, func(*uint64) {})
		}
		var before uint64
		for ; len(rest) > 0 && !o.full(); rest = rest[1:] {
			b := rest[0]
			o.block(&b, &before)
		}
	}
}

func (c *carrier) block(b *Block, before *uint64) {
	address := b.Address - *before
	codec.Num(c.Codec, &address)
	b.Address = *before + address
	*before = b.Address
	codec.Num(c.Codec, &b.Size)
	codec.Num(c.Codec, &b.Device)
}

func takeBlocks(c *carrier, p *process) {
	var freed []uint64
	codec.List(c.Codec, &freed, maxFreed, func(address *uint64) { codec.Num(c.Codec, address) })
	x := &p.blockList
	if x.freed == nil {
		x.freed = freed
	}
	var before uint64
	for !c.Bad && len(c.Rest) > 0 {
		var b Block
		c.block(&b, &before)
		if c.Check(p.listedBlocks < maxListed && (len(x.blocks) == 0 || b.Address >= x.blocks[len(x.blocks)-1].Address)); c.Bad {
			return
		}
		x.blocks = append(x.blocks, b)
		p.listedBlocks++
	}
}

// walks tells the holders of the memory of a process, and the state of a walk under way.
func (o *opener) walks(p *process) {
	w, c := p.walks, &o.carrier
	if w == nil {
		return
	}
	for i := range w.list {
		held := w.list[i].Held
		for part := 0; part == 0 || len(held) > 0; part++ {
			o.beginOf(carriedWalk, p)
			x := w.list[i]
			c.walked(&part, &x)
			for ; len(held) > 0 && !o.full() && len(c.Texts) < 1<<12; held = held[1:] {
				h := held[0]
				c.held(&h)
			}
		}
	}
	each(o, carriedHeldSites, p, o.heldSites(p), func(x *heldOf) { carryHeldSite(c, p, x) })
	each(o, carriedHeld, p, w.blocks, c.heldBlock)
	each(o, carriedOlder, p, w.older.sums(), c.olderSums)
	each(o, carriedOlderBlocks, p, w.older.blocks, c.olderBlock)
	if w.open != nil {
		o.beginOf(carriedOpenWalk, p)
		carryOpenWalk(c, p, w.open)
	}
}

// walked carries what a piece of a walk begins with.
func (c *carrier) walked(part *int, w *Walked) {
	codec.Num(c.Codec, part)
	if *part != 0 {
		return
	}
	codec.Nums(c.Codec, &w.Time, &w.Took)
	c.Text(&w.Failure)
	c.TextList(&w.Problems, maxHeld)
	codec.List(c.Codec, &w.Allocators, maxDevices, c.walkTotals)
}

func (c *carrier) walkTotals(t *WalkTotals) {
	c.device(&t.Device)
	codec.Nums(c.Codec, &t.Allocated, &t.Held, &t.Older, &t.HeldOlder, &t.Excess, &t.ExcessOlder) // Unreported is only set in snapshots
}

func (c *carrier) held(h *Held) {
	c.device(&h.Device)
	for _, x := range [...]*string{&h.Path, &h.Class, &h.Container} {
		c.Text(x)
	}
	c.TextList(&h.Frames, maxHeld)
	c.TextList(&h.Also, maxHeld)
	codec.Nums(c.Codec, &h.Containers, &h.Entries)
	c.retention(&h.Holder)
	codec.Nums(c.Codec, &h.Bytes, &h.Storages, &h.Older, &h.InMotion, &h.Driver)
}

// withParts is the bit of carrier.retention above which parts of a model follow. Older versions
// wrote none.
const withParts = 1 << 24

const maxParts = 64 // kinds, also of later versions

// retention carries whether a holder was found, and above that bit, which is all that the oldest
// versions wrote, how its path keeps memory, and what it keeps of a model.
func (c *carrier) retention(h *Holder) {
	bits := uint32(h.Retention)<<1 | withParts
	if h.Found {
		bits |= 1
	}
	codec.Num(c.Codec, &bits)
	h.Found, h.Retention = bits&1 != 0, retention.Read(retention.Set(bits>>1), h.Path)
	if bits&withParts == 0 {
		return
	}
	parts := h.Parts[:]
	codec.List(c.Codec, &parts, maxParts, func(n *uint64) { codec.Num(c.Codec, n) })
	h.Parts = modelpart.Read(parts)
}

func takeWalk(c *carrier, p *process) {
	if p.walks == nil {
		p.walks = &walks{}
	}
	part, x := 0, Walked{}
	c.walked(&part, &x)
	switch {
	case c.Bad:
		return
	case part == 0:
		if len(p.walks.list) >= maxWalks {
			c.Bad = true
			return
		}
		p.walks.list = append(p.walks.list, x)
	case len(p.walks.list) == 0:
		c.Bad = true
		return
	}
	w := &p.walks.list[len(p.walks.list)-1]
	for !c.Bad && len(c.Rest) > 0 {
		var h Held
		c.held(&h)
		s := &p.quotas[tableHeld]
		if c.Check(s.Used() < s.Size()); c.Bad {
			return
		}
		p.hold(tableHeld)
		w.Held = append(w.Held, h)
	}
}

// heldOf is a site with its holders.
type heldOf struct {
	site *site
	*heldSite
}

// heldSites returns the sites that are still in the books, in their order.
func (o *opener) heldSites(p *process) (list []heldOf) {
	for key, h := range p.walks.sites {
		if n, ok := p.siteOf[key]; ok {
			list = append(list, heldOf{p.sites[n], h})
		}
	}
	slices.SortFunc(list, func(a, b heldOf) int { return cmp.Compare(o.site[a.site], o.site[b.site]) })
	return list
}

func carryHeldSite(c *carrier, p *process, x *heldOf) {
	c.siteRef(p, &x.site)
	codec.Num(c.Codec, &x.live)
	codec.Map(c.Codec, &x.parts, maxHeld, func(holder *uint32, bytes *uint64) {
		codec.Num(c.Codec, holder)
		codec.Num(c.Codec, bytes)
	})
}

func takeHeldSites(c *carrier, p *process) {
	w := p.walks
	if c.Check(w != nil && len(w.list) > 0); c.Bad {
		return
	}
	if w.sites == nil {
		w.sites = make(map[siteKey]*heldSite)
	}
	for !c.Bad && len(c.Rest) > 0 {
		x := heldOf{heldSite: &heldSite{parts: map[uint32]uint64{}}}
		carryHeldSite(c, p, &x)
		for holder, bytes := range x.parts {
			bytes = min(bytes, maxTensors-x.held)
			x.parts[holder] = bytes
			x.held += bytes
		}
		x.live = min(x.live, 2*maxTensors)
		if !c.Bad {
			w.sites[x.site.siteKey] = x.heldSite
		}
	}
}

func (c *carrier) heldBlock(b *heldBlock) {
	codec.Nums(c.Codec, &b.address, &b.size)
	codec.Num(c.Codec, &b.holder)
}

func takeHeld(c *carrier, p *process) {
	w := p.walks
	if c.Check(w != nil && len(w.list) > 0); c.Bad {
		return
	}
	for !c.Bad && len(c.Rest) > 0 {
		var b heldBlock
		c.heldBlock(&b)
		if c.Check(p.heldBlocks < maxHeldBlocks); c.Bad {
			return
		}
		w.blocks = append(w.blocks, b)
		p.heldBlocks++
	}
}

// olderSums is what one holder has in an olderSet.
type olderSums struct{ held, gone rankedBytes }

func (o *olderSet) sums() []olderSums {
	list := make([]olderSums, len(o.held))
	for i := range list {
		list[i] = olderSums{o.held[i], o.gone[i]}
	}
	return list
}

func (c *carrier) olderSums(x *olderSums) {
	for rank := range foundRanks {
		codec.Amount(c.Codec, &x.held[rank], maxTensors)
		codec.Amount(c.Codec, &x.gone[rank], maxTensors)
	}
}

func takeOlder(c *carrier, p *process) {
	w := p.walks
	if c.Check(w != nil && len(w.list) > 0); c.Bad {
		return
	}
	for !c.Bad && len(c.Rest) > 0 {
		var x olderSums
		c.olderSums(&x)
		if c.Check(len(w.older.held) < maxHeld); !c.Bad {
			w.older.held, w.older.gone = append(w.older.held, x.held), append(w.older.gone, x.gone)
		}
	}
}

func (c *carrier) olderBlock(b *olderBlock) {
	codec.Num(c.Codec, &b.address)
	codec.Amount(c.Codec, &b.size, maxSize)
	codec.Num(c.Codec, &b.holder)
	codec.Most(c.Codec, &b.rank, foundRanks-1)
	c.Flags(&b.gone)
}

func takeOlderBlocks(c *carrier, p *process) {
	w := p.walks
	if c.Check(w != nil && len(w.list) > 0); c.Bad {
		return
	}
	for !c.Bad && len(c.Rest) > 0 {
		var b olderBlock
		c.olderBlock(&b)
		last := len(w.older.blocks) - 1
		if c.Check(p.heldBlocks < maxHeldBlocks && (last < 0 || b.address > w.older.blocks[last].address)); !c.Bad {
			w.older.blocks = append(w.older.blocks, b)
			p.heldBlocks++
		}
	}
}

// freedOf is an entry of openWalk.freed.
type freedOf struct {
	key liveKey
	freedEntry
}

// carryOpenWalk carries the state of a walk under way. Sites that are gone count as unknown.
func carryOpenWalk(c *carrier, p *process, w *openWalk) {
	codec.Num(c.Codec, &w.time)
	codec.List(c.Codec, &w.allocators, maxDevices, c.walkTotals)
	var list []freedOf
	for key, x := range w.freed {
		if _, ok := p.siteOf[x.site]; ok {
			list = append(list, freedOf{key, x})
		}
	}
	slices.SortFunc(list, func(a, b freedOf) int {
		return cmp.Or(cmp.Compare(a.key.address, b.key.address), cmp.Compare(a.key.space, b.key.space))
	})
	codec.List(c.Codec, &list, maxFreed, func(x *freedOf) {
		number := p.siteOf[x.site]
		codec.Num(c.Codec, &x.key.address)
		codec.Most(c.Codec, &x.key.space, lastSpace)
		if c.siteOf(p, &number); c.Bad {
			return
		}
		codec.Amount(c.Codec, &x.weight, maxTensors)
		codec.Most(c.Codec, &x.size, maxSize)
		if c.Reads() {
			x.site = p.sites[number].siteKey
			w.freed[x.key] = x.freedEntry
		}
	})
	if c.Reads() && len(c.Rest) == 0 { // of an older capture
		return
	}
	given := slices.Sorted(maps.Keys(w.given))
	codec.List(c.Codec, &given, maxFreed, func(address *uint64) {
		codec.Num(c.Codec, address)
		w.given[*address] = struct{}{}
	})
}

func takeOpenWalk(c *carrier, p *process) {
	if p.walks == nil {
		p.walks = &walks{}
	}
	w := &openWalk{freed: map[liveKey]freedEntry{}, given: map[uint64]struct{}{}}
	if carryOpenWalk(c, p, w); c.Bad || p.walks.open != nil {
		c.Bad = true
		return
	}
	p.walks.open = w
}

// carryWaste carries what the other pieces of walks do not have.
func carryWaste(c *carrier, p *process) {
	if c.Check(p.walks != nil); c.Bad {
		return
	}
	for i := range p.walks.list {
		w := &p.walks.list[i]
		codec.List(c.Codec, &w.Waste, MaxWaste, func(x *Waste) {
			c.Text(&x.Kind)
			c.Text(&x.Path)
			c.device(&x.Device)
			for _, n := range [...]*uint64{&x.Bytes, &x.Storages, &x.Whole} {
				codec.Amount(c.Codec, n, maxSum)
			}
		})
		for k := range w.Held {
			if c.Bad {
				return
			}
			c.Text(&w.Held[k].Thing)
			c.Flags(&w.Held[k].Many)
		}
	}
}
