// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"slices"
)

const (
	maxWeighed = 4 // rounds: a guess that holds leads to further ones
)

// weigher decides which guesses about wrapped memory hold.
type weigher struct {
	*search
	sweeper  sweeper
	outOfUse map[uint64]bool // words of wrapped memory that hold nothing
}

// run enters guesses about what nothing else was found to hold. Each reference that an object
// counts needs a word: vectors of tensors come first, in wrapped memory and out of it, and then
// other wrapped words. Where there are more words than references, none of them names a holder.
func (w *weigher) run() error {
	for range maxWeighed {
		open := w.openGuesses()
		if len(open) == 0 || w.stopped != "" {
			return nil
		}
		vectors, err := w.vectorsWith(open)
		if err != nil {
			return err
		}
		for k, words := range open {
			for _, g := range w.credible(words, vectors[k]) {
				w.pushCPP(g.object, g.from, g.step, 0, g.cost)
			}
		}
		w.expandAll()
	}
	return nil
}

// openGuesses takes the guesses whose objects have no path, by object.
func (w *weigher) openGuesses() (open [][]guess) {
	all := w.guesses
	w.guesses = nil
	slices.SortStableFunc(all, func(a, b guess) int {
		return cmp.Or(cmp.Compare(a.object, b.object), cmp.Compare(a.at, b.at), a.cost-b.cost)
	})
	all = slices.CompactFunc(all, func(a, b guess) bool { return a.object == b.object && a.at == b.at })
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].object == all[0].object {
			n++
		}
		if _, known := w.index.get(all[0].object); !known {
			open = append(open, all[:n:n])
		}
		all = all[n:]
	}
	return open
}

// vectorsWith counts the vectors of tensors elsewhere that have each object, such as those of the
// engine of a backward pass. It looks at memory only where all of it was copied.
func (w *weigher) vectorsWith(open [][]guess) ([]int, error) {
	counts := make([]int, len(open))
	if !w.sweeper.whole() {
		return counts, nil
	}
	set := newWanted(len(open))
	for k, words := range open {
		set.add(words[0].object, int32(k))
	}
	if err := w.sweeper.sweep(set.look); err != nil {
		return nil, err
	}
	for _, h := range set.hits {
		own := slices.ContainsFunc(open[h.item], func(g guess) bool { return g.at == h.at })
		if !own && w.inTensors(h.at) {
			counts[h.item]++
		}
	}
	return counts, nil
}

// credible returns the guesses about one object that its count of references allows, beside the
// vectors elsewhere. The words of the others are out of use.
func (w *weigher) credible(words []guess, vectors int) (right []guess) {
	left := int(w.py.U32(words[0].object+8)) - vectors
	var first, rest []guess
	for _, g := range words {
		if w.inTensors(g.at) {
			first = append(first, g)
		} else {
			rest = append(rest, g)
		}
	}
	for _, list := range [][]guess{first, rest} {
		if left -= len(list); left >= 0 {
			right = append(right, list...)
			continue
		}
		for _, g := range list {
			w.outOfUse[g.at] = true
		}
	}
	return right
}
