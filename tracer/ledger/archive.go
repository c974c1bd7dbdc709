// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"iter"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/codec"
	"github.com/vramprof/vramprof/tracer/ledger/growth"
)

// archive has what the archived sites of all processes share.
type archive struct {
	apis *names // of calls
	// Whether the stacks of archived sites are of segments: see MarkSegments.
	segments map[uint64]segmentStack
}

// segmentStack is a stack of archived sites that may be segments.
type segmentStack struct {
	segment bool
	sites   uint32 // how many
}

func newArchive() archive {
	return archive{&names{number: make(map[string]uint64)}, make(map[uint64]segmentStack)}
}

// asksForSegment reports whether archive.segments counts the site while it is archived.
func (s *site) asksForSegment() bool { return !s.segment && s.stack != 0 && s.mayBeSegment() }

// add counts a site that is archived.
func (a *archive) add(s *site) {
	if s.asksForSegment() {
		x := a.segments[s.stack]
		a.segments[s.stack] = segmentStack{x.segment, x.sites + 1}
	}
}

// drop undoes add, and ends the site's use of its API's name.
func (a *archive) drop(s *site) {
	a.apis.drop(s.api)
	if !s.asksForSegment() {
		return
	}
	if x := a.segments[s.stack]; x.sites > 1 {
		a.segments[s.stack] = segmentStack{x.segment, x.sites - 1}
	} else {
		delete(a.segments, s.stack)
	}
}

// mark asks is for the stack of each archived site that is not known as one of segments yet.
func (a *archive) mark(is func(stack uint64) bool) {
	for stack, x := range a.segments {
		if !x.segment && is(stack) {
			a.segments[stack] = segmentStack{true, x.sites}
		}
	}
}

// archiveSites packs the sites of a process that ended and has lost its entries. They do not change
// any more, but a capture shows them at its end, and a day of short processes makes very many. An
// archived site of 20 allocations takes about 280 bytes.
//
// A history keeps at most two values for each step that a snapshot shows now; that of a process
// which began in the later half of the session keeps one for two steps.
func (p *torch) archiveSites() {
	w := packer{apis: p.archive.apis, groups: map[growth.Group]uint64{}}
	place := make(map[uint32]uint32, len(p.sites)) // index in the archive by number
	since, changes := sinceOf(p.options.Begin, p.Begin, p.End), uint64(growth.MaxChanges)
	if since != p.options.Begin {
		changes /= 4
	}
	for s := range p.all() {
		p.stats.Reused += s.early.objects // the end of its context will not be reported any more
		if s.kind != aliased {
			place[s.number] = uint32(len(place))
			p.archive.add(s)
			s.track.History.Shorten(minus(p.End, since), changes)
			w.site(s)
		}
		p.dropSite(s)
	}
	p.sites, p.unused, p.recent, p.siteOf, p.classes = nil, nil, nil, nil, nil
	p.archived = append(make([]byte, 0, len(w.out)), w.out...)
	p.renumber(func(n uint32) uint32 { return place[n] })
}

// unpacked yields the archived sites.
func (p *heap) unpacked() iter.Seq[*site] {
	return func(yield func(*site) bool) {
		u := unpacker{in: p.archived, apis: p.archive.apis.names, groups: map[uint64]growth.Group{}}
		for len(u.in) > 0 {
			s := u.site()
			if !yield(&s) {
				return
			}
		}
	}
}

// dropArchived drops the archived sites, and returns how many they are.
func (p *heap) dropArchived() (sites int) {
	for s := range p.unpacked() {
		p.archive.drop(s)
		sites++
	}
	p.archived = nil
	return sites
}

// renumber changes the numbers of sites that the process keeps.
func (p *torch) renumber(to func(uint32) uint32) {
	for i := range p.tensors {
		t := &p.tensors[i]
		for k := range t.first.driver {
			t.first.driver[k].site = to(t.first.driver[k].site)
		}
		for k := range t.atUsage.driver {
			t.atUsage.driver[k].site = to(t.atUsage.driver[k].site)
		}
		for k := range t.changes {
			t.changes[k].site = to(t.changes[k].site)
		}
	}
}

// withSites calls do with the sites of the process, the archived ones last. Changes to archived
// sites are lost when do returns.
func (p *torch) withSites(do func(sites []*site)) {
	list := slices.Collect(p.all())
	if len(p.archived) == 0 {
		do(list)
		return
	}
	base := uint32(len(p.sites))
	for s := range p.unpacked() {
		s.number = uint32(len(p.sites))
		s.segment = s.segment || s.mayBeSegment() && p.archive.segments[s.stack].segment
		if s.kind == Tensor {
			p.sumOf(s)
		}
		p.sites = append(p.sites, s)
		list = append(list, s)
	}
	p.renumber(func(n uint32) uint32 { return base + n })
	do(list)
	p.renumber(func(n uint32) uint32 { return n - base })
	clear(p.sites[base:])
	p.sites = p.sites[:base]
}

// names numbers the names of calls.
type names struct {
	names  []string
	uses   []int
	number map[string]uint64
	unused []uint64
}

// of returns the number of a name, which gets one more use.
func (x *names) of(name string) uint64 {
	n, ok := x.number[name]
	switch last := len(x.unused) - 1; {
	case ok:
	case last >= 0:
		n, x.unused = x.unused[last], x.unused[:last]
		x.names[n], x.number[name] = name, n
	default:
		n = uint64(len(x.names))
		x.names, x.uses = append(x.names, name), append(x.uses, 0)
		x.number[name] = n
	}
	x.uses[n]++
	return n
}

// drop ends one use of a name.
func (x *names) drop(name string) {
	n := x.number[name]
	if x.uses[n]--; x.uses[n] == 0 {
		delete(x.number, name)
		x.names[n], x.unused = "", append(x.unused, n)
	}
}

// Flags of a packed site, next to its kind.
const (
	packedSegment  = 1
	packedPresumed = 1 << 7
	_              = uint8(packedPresumed>>1-1) - uint8(lastKind) // a kind has the bits between them
)

// packer writes sites. Numbers are Uvarints of encoding/binary, except hashes.
type packer struct {
	out    []byte
	apis   *names
	groups map[growth.Group]uint64 // numbers of shared cohorts, from 1 on
}

func (w *packer) site(s *site) {
	flags := byte(s.kind) << 1
	if s.segment {
		flags |= packedSegment
	}
	if s.presumed != nil {
		flags |= packedPresumed
	}
	w.out = append(w.out, flags, byte(s.space), s.class)
	w.out = binary.LittleEndian.AppendUint64(w.out, s.stack)
	w.out = codec.AppendUvarints(w.out, s.context, uint64(uint32(s.device)), w.apis.of(s.api),
		s.liveObjects, s.liveBytes, s.allocObjects, s.allocBytes, s.liveSquares, s.inside, s.oldest, s.evicted, s.crowded,
		uint64(s.peak.number), s.peak.objects, s.peak.bytes)
	w.out = growth.Append(w.out, &s.track, w.groups)
	if s.presumed != nil {
		w.out = growth.AppendPresumed(w.out, s.presumed)
	}
}

// unpacker reads what a packer wrote.
type unpacker struct {
	in     codec.Uvarints
	apis   []string
	groups map[uint64]growth.Group
}

func (r *unpacker) site() (s site) {
	flags := r.in[0]
	s.kind, s.segment, s.space, s.class = Kind(flags&^packedPresumed>>1), flags&packedSegment != 0, Space(r.in[1]), r.in[2]
	s.stack = binary.LittleEndian.Uint64(r.in[3:])
	r.in = r.in[11:]
	s.context, s.device, s.api = r.in.Next(), int32(uint32(r.in.Next())), r.apis[r.in.Next()]
	r.in.Read(&s.liveObjects, &s.liveBytes, &s.allocObjects, &s.allocBytes, &s.liveSquares, &s.inside, &s.oldest, &s.evicted, &s.crowded)
	s.peak.number = uint32(r.in.Next())
	r.in.Read(&s.peak.objects, &s.peak.bytes)
	r.in = growth.Read(r.in, &s.track, r.groups)
	if flags&packedPresumed != 0 {
		s.presumed, r.in = growth.ReadPresumed(r.in)
	}
	return s
}
