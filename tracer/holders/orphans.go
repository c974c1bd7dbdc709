// SPDX-License-Identifier: Apache-2.0

package holders

import "github.com/vramprof/vramprof/tracer/holders/peek"

const (
	maxLevels  = 2       // up from what has no path
	maxLeads   = 1 << 14 // addresses of one level
	maxOrphans = 1 << 18
	maxOfLeads = 1 << 20 // orphans of the leads of one level, in all
)

// clue is what is known of the holder of an orphan. The better ones are smaller.
type clue uint8

const (
	clueNode   clue = iota + 1 // an object of Python with a path
	clueStep                   // a thread's stack leads to it
	clueClass                  // a C++ object of a known class
	clueStatic                 // a variable of a library
	clueNone
)

// orphan is memory that no path leads to: a storage, an allocation, or an object of Python that
// only C or C++ holds.
type orphan struct {
	storage    *storage
	allocation int // index, or -1
	loose      int // index of its root, or -1
	clue       clue
	node       int32  // of clueNode
	text       string // of the others: who holds it
	at         uint64 // the word that has its address
}

// lead is an address on the way up from orphans: who has it holds them.
type lead struct {
	address uint64
	word    uint64 // the first one there that leads to an orphan
	orphans []int32
}

// leads are those of one level.
type leads struct {
	list  []lead
	known map[uint64]int
	total int // orphans of all of them
}

// add enters an address on the way up from an orphan, and the word there that leads to it, or 0.
func (l *leads) add(address uint64, o int32, word uint64) {
	k, is := l.known[address]
	if !is {
		if len(l.list) >= maxLeads {
			return
		}
		k = len(l.list)
		l.known[address] = k
		l.list = append(l.list, lead{address: address, word: word})
	}
	l.list[k].word = min(l.list[k].word, word)
	if of := l.list[k].orphans; l.total < maxOfLeads && (len(of) == 0 || of[len(of)-1] != o) {
		l.list[k].orphans = append(of, o)
		l.total++
	}
}

// adoption looks for who holds what no path leads to.
type adoption struct {
	*search
	scope
	sweeper     sweeper
	stacks      stackWalk
	allocations *allocationFinder
	loose       *looseFinder
	outOfUse    map[uint64]bool // words that hold nothing
	orphans     []orphan
	first       bool   // while the places of addresses themselves are looked at
	word        uint64 // of the block that is looked for, on the way to an orphan
	level       int    // of the search upward
}

// run looks from the stacks of threads downward, then from the orphans upward.
func (w *adoption) run(live peek.Memory) error {
	w.listOrphans(live)
	if len(w.orphans) == 0 {
		return nil
	}
	w.stacks.run()
	next := w.firstLeads()
	for ; ; w.level++ {
		w.fromStacks(next.list)
		if len(next.list) == 0 || w.level == maxLevels || w.py.late() || !w.anyOpen() {
			break
		}
		set := newWanted(len(next.list))
		for i, l := range next.list {
			if w.open(l.orphans) {
				set.add(l.address, int32(i))
			}
		}
		if err := w.sweeper.sweep(set.look); err != nil {
			return err
		}
		next = w.climb(next, set.hits)
	}
	w.adopt()
	return nil
}

// listOrphans lists what has no path, less what has changed since it was copied: nothing is true of
// it.
func (w *adoption) listOrphans(live peek.Memory) {
	now := w.py.Copy
	if live != nil {
		now = peek.NewCopy(live, 64<<20)
		defer now.Close()
	}
	enter := func(o orphan) {
		if len(w.orphans) < maxOrphans {
			o.clue = clueNone
			w.orphans = append(w.orphans, o)
		}
	}
	for _, st := range w.storages.found {
		at := st.address
		if st.holder < 0 && w.wants(st) && now.U64(at) == w.py.U64(at) && now.U32(at+8) != 0 && now.U64(at+w.storages.torch.storage) == st.data {
			enter(orphan{storage: st, allocation: -1, loose: -1})
		}
	}
	for _, k := range w.neededRoots() {
		if a := w.nodes[w.loose.native[k]].address; now.U64(a+obType) == w.py.U64(a+obType) && now.U32(a) != 0 {
			enter(orphan{allocation: -1, loose: k})
		}
	}
	for k := range w.allocations.list {
		if w.allocations.list[k].node < 0 {
			enter(orphan{allocation: k, loose: -1})
		}
	}
}

// neededRoots returns the roots of objects that only C or C++ holds and that lead to a part of the
// result.
func (w *adoption) neededRoots() (roots []int) {
	seen := map[int]bool{}
	look := func(i int32) {
		if k := w.rootOf(i); !seen[k] {
			seen[k] = true
			if _, loose := w.loose.native[k]; loose {
				roots = append(roots, k)
			}
		}
	}
	for _, st := range w.storages.found {
		if st.holder >= 0 && w.wants(st) {
			look(st.holder)
		}
	}
	for k := range w.allocations.list {
		if i := w.allocations.list[k].node; i >= 0 {
			look(i)
		}
	}
	return roots
}

// firstLeads returns where the search upward begins: storages, their tensors, objects, and what has
// the addresses of allocations.
func (w *adoption) firstLeads() *leads {
	first := &leads{known: map[uint64]int{}}
	storages, allocations := map[uint64]int32{}, map[int32]int32{}
	for k := range w.orphans {
		switch o := &w.orphans[k]; {
		case o.storage != nil:
			storages[o.storage.address] = int32(k)
			first.add(o.storage.address, int32(k), 0)
		case o.loose >= 0:
			first.add(w.nodes[w.loose.native[o.loose]].address, int32(k), 0)
		default:
			allocations[int32(o.allocation)] = int32(k)
		}
	}
	for _, impl := range w.storages.impls {
		if o, is := storages[w.py.U64(impl+w.storages.torch.storage)]; is {
			first.add(impl, o, 0)
		}
	}
	w.first = true
	defer func() { w.first = false }()
	for _, h := range w.allocations.hits {
		if o, is := allocations[h.item]; is && h.form == formPointer && !w.py.late() {
			w.follow(h.at, []int32{o}, func(address uint64) { first.add(address, o, h.at) })
		}
	}
	return first
}

// fromStacks takes it as evidence that a stack leads to a lead.
func (w *adoption) fromStacks(list []lead) {
	for _, l := range list {
		if w.stacks.reach[l.address] {
			w.note(l.orphans, clueStep, 0, inUse, l.address)
		}
	}
}

// climb goes from the places where leads were found to what these belong to.
func (w *adoption) climb(from *leads, hits []hit) *leads {
	next := &leads{known: map[uint64]int{}}
	for _, h := range hits {
		if w.py.late() {
			break
		}
		l := from.list[h.item]
		if !w.open(l.orphans) {
			continue
		}
		w.word = l.word
		w.follow(h.at, l.orphans, func(address uint64) {
			if _, again := from.known[address]; again {
				return
			}
			for _, o := range l.orphans {
				if w.orphans[o].clue > clueStep {
					next.add(address, o, h.at)
				}
			}
		})
	}
	return next
}

// open reports whether one of these orphans still needs a better clue.
func (w *adoption) open(orphans []int32) bool {
	for _, o := range orphans {
		if w.orphans[o].clue > clueStep {
			return true
		}
	}
	return false
}

func (w *adoption) anyOpen() bool {
	for k := range w.orphans {
		if w.orphans[k].clue > clueStep {
			return true
		}
	}
	return false
}

// follow looks at a place that has the address of orphans, or of what holds them: it is a clue, or
// a part of an object whose holder is to be looked for.
func (w *adoption) follow(at uint64, orphans []int32, up func(address uint64)) {
	switch p := w.stacks.placeOf(at); {
	case w.outOfUse[at]:
	case p.stack:
		w.note(orphans, clueStep, 0, inUse, at)
	case p.object != 0:
		if i, known := w.index.get(p.object); known {
			w.note(orphans, clueNode, i, "", at)
		} else {
			up(p.object)
		}
	case isBooks(p.file):
	case p.file != "":
		w.note(orphans, clueStatic, 0, "variable of "+p.file, at)
	case p.start != 0:
		if text, step := p.class.holds(); step {
			w.note(orphans, clueStep, 0, byClass, at)
		} else if text != "" {
			w.note(orphans, clueClass, 0, text, at)
		}
		up(p.start)
	}
}

// note gives orphans a clue unless they have a better one.
func (w *adoption) note(orphans []int32, c clue, node int32, text string, at uint64) {
	for _, k := range orphans {
		o := &w.orphans[k]
		better := c < o.clue || c == clueNode && o.clue == clueNode && w.nodes[node].cost < w.nodes[o.node].cost
		switch {
		case !better || c == clueNode && o.loose >= 0 && w.below(node, o.loose):
		case (c == clueClass || c == clueStep && text == byClass) && !w.near(o) && !w.isVector(at, w.word):
		case c == clueNode && o.allocation >= 0 && w.level > 0: // such as the driver's context, which has all of them
		case c == clueStep && o.allocation >= 0:
			o.clue, o.text, o.at = c, onThread, at
		case text == byClass:
			o.clue, o.text, o.at = c, inUse, at
		default:
			o.clue, o.node, o.text, o.at = c, node, text, at
		}
	}
}

// near reports whether the level is that of the objects that hold an orphan themselves. Further up,
// a word of a C++ object can be out of use and point to what has taken the place of something else.
func (w *adoption) near(o *orphan) bool {
	return w.level == 0 && (o.allocation < 0 || w.first)
}

// adopt enters what was found: paths, and other holders as the begin of a path.
func (w *adoption) adopt() {
	for k := range w.orphans {
		o := &w.orphans[k]
		switch {
		case o.clue == clueNone || o.clue == clueNode && o.loose >= 0 && w.below(o.node, o.loose):
		case o.loose >= 0 && o.clue == clueNode:
			w.adopted[o.loose] = o.node
		case o.loose >= 0:
			w.roots[o.loose] = Root{Kind: RootNative, Classes: o.text}
		case o.storage != nil && o.clue == clueNode:
			o.storage.holder = o.node
		case o.storage != nil:
			o.storage.native = o.text
		case o.clue == clueNode:
			w.allocations.hold(&w.allocations.list[o.allocation], o.node, hit{at: o.at})
		default:
			al := &w.allocations.list[o.allocation]
			al.native, al.static, al.place = o.text, o.clue == clueStatic, hit{at: o.at}
		}
	}
	for root, node := range w.adopted {
		n := &w.nodes[w.loose.native[root]]
		n.from, n.step, n.aux = node, StepField, 0
	}
}
