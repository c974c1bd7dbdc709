// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// Two walks see a training at two moments of its steps: at one of them there are gradients and
// activations, at the other there are not. What differs by these has not grown.

// leastLasting is the least share of a holder's memory that must have lasted for the holder to
// count as grown.
const leastLasting = 1.0 / 8

type deviceHolder struct {
	path   string
	device int32
}

// young is memory that one holder keeps, as far as a site has it, and how much of it has lasted.
type young struct{ bytes, lasted float64 }

// passing moves holders from Grown to Passing that had little memory for longer than a quarter of
// the time between the walks. Of memory that no site has, which is older than the attach, not in
// the sample or not traced, the age is unknown: what the walks do not show goes to Unclear.
func (k *Kept) passing(s *ledger.Snapshot, walks [][]HolderLine) {
	ages := k.ages(s)
	var unknown []GrownLine
	grown := slices.DeleteFunc(k.Grown, func(g GrownLine) bool {
		switch y := ages[deviceHolder{g.Path, g.Device}]; {
		case y == nil || y.bytes < float64(g.By.Bytes)/2:
			unknown = append(unknown, g)
		case y.lasted < leastLasting*y.bytes:
			k.Passing = append(k.Passing, g)
		default:
			return false
		}
		return true
	})
	risen, doubtful := unclear(unknown, levelsOf(walks))
	k.Grown, k.Unclear, k.Walks = append(grown, risen...), doubtful, len(walks)
	slices.SortStableFunc(k.Grown, func(a, b GrownLine) int { return cmp.Compare(b.By.Bytes, a.By.Bytes) })
}

// ages returns the ages of what holders keep of the process's sites, of tensors and of memory that
// CUDA gave out.
func (k *Kept) ages(s *ledger.Snapshot) map[deviceHolder]*young {
	ages := map[deviceHolder]*young{}
	add := func(key deviceHolder, bytes uint64, share float64) {
		y := ages[key]
		if y == nil {
			y = &young{}
			ages[key] = y
		}
		y.bytes += float64(bytes)
		y.lasted += share * float64(bytes)
	}
	quarter := uint64(k.Between) / 4
	begin, before := Minus(k.At, 3*quarter), Minus(k.At, quarter) // since Begin
	for i := range s.Sites {
		x := &s.Sites[i]
		tensors := x.Kind == ledger.Tensor
		if x.Process != k.Process || x.Device < 0 || x.LiveBytes == 0 || !tensors && len(x.Holders) == 0 {
			continue
		}
		share, rest := lastedShare(x, begin, before), x.LiveBytes
		for _, h := range x.Holders {
			if h.Holder >= 0 && h.Holder < len(k.held) {
				add(deviceHolder{k.held[h.Holder].Path, x.Device}, min(h.Bytes, rest), share)
				rest -= min(h.Bytes, rest)
			}
		}
		if tensors {
			add(deviceHolder{NoHolder, x.Device}, rest, share)
		}
	}
	return ages
}

// lastedShare returns the share of a site's live bytes that was allocated before to, or by which
// its floor rose since from; both in ns after the session's begin. A tensor that is copied into a
// longer one is always young, but the floor rises. A floor that is reached at once does not count:
// it took the place of what is older than the attach.
func lastedShare(x *ledger.Site, from, to uint64) float64 {
	old, first, last := uint64(0), uint64(0), x.LiveBytes
	for i := range x.Cohorts {
		c := &x.Cohorts[i]
		end := x.FirstWindow + uint64(i+1)*x.Window
		if end <= from || i < 2 {
			first = max(first, c.Floor)
		}
		if end <= to {
			old += c.LiveBytes
		} else {
			last = min(last, c.Floor)
		}
	}
	return min(float64(max(old, Minus(last, first)))/float64(x.LiveBytes), 1)
}

// Walks come at any moment of a program's step, and find gradients and activations at one moment
// and none at another. That the latest has more than the first is no growth: it is so half of the
// time. Only levels that rise from walk to walk are.

// LeastWalks is how many walks can show growth by themselves. Levels that depend on the moment
// alone rise through four in one of 24 sessions, and through six in less than one of 200.
const LeastWalks = leastRises + 1

const leastRises = 3

// rises reports whether levels of memory never fall and rise at least three times, also in the
// second half: the first batches fill buffers, and a first backward pass makes gradients that stay.
func rises(levels []uint64) bool {
	n, count := len(levels), 0
	for i := 1; i < n; i++ {
		if levels[i] < levels[i-1] {
			return false
		}
		if levels[i] > levels[i-1] {
			count++
		}
	}
	return count >= leastRises && levels[n-1]-levels[n/2] >= (levels[n-1]-levels[0])/8
}

// levelsOf returns how much each holder had at each walk, in the order of the walks.
func levelsOf(walks [][]HolderLine) map[deviceHolder][]uint64 {
	levels := map[deviceHolder][]uint64{}
	for i, lines := range walks {
		for k := range lines {
			l := &lines[k]
			key := deviceHolder{l.Path, l.Device}
			if levels[key] == nil {
				levels[key] = make([]uint64, len(walks))
			}
			levels[key][i] += l.Bytes
		}
	}
	return levels
}

// unclear removes from list the holders whose growth the walks do not show, and returns them. A
// gradient is as large as its parameter, and has not grown where that has not.
func unclear(list []GrownLine, levels map[deviceHolder][]uint64) (kept, removed []GrownLine) {
	kept = slices.DeleteFunc(list, func(g GrownLine) bool {
		if !g.Retention.Has(retention.Gradient) && rises(levels[deviceHolder{g.Path, g.Device}]) {
			return false
		}
		removed = append(removed, g)
		return true
	})
	return kept, removed
}

// UnclearText returns how much more holders had at the latest walk than at the first, and why that
// is not called growth; "" without any.
func UnclearText(list []GrownLine, walks int) string {
	if len(list) == 0 {
		return ""
	}
	sum := int64(0)
	for i := range list {
		sum += list[i].By.Bytes
	}
	text := fmt.Sprintf("%s had %s more than at the first walk, which may come and go in a step: ", format.Count(uint64(len(list)), "holder"), format.Bytes(uint64(sum)))
	if walks < LeastWalks {
		return text + fmt.Sprintf("growth takes %d walks to show, and there were %d", LeastWalks, walks)
	}
	return text + fmt.Sprintf("their memory did not rise through the %d walks", walks)
}

// Grown returns the lines that grew between the walks, the fastest first, and those that had more
// at the latest walk and may not have grown: see UnclearText.
func (h *Holders) Grown() (grown, doubtful []GrownLine) {
	if h.Before == nil {
		return nil, nil
	}
	walks := [][]HolderLine{h.linesOf(h.Before)}
	for _, r := range h.During {
		walks = append(walks, h.linesOf(r))
	}
	walks = append(walks, h.Lines())
	return unclear(grownLines(walks[0], h.Lines(), h.Between()), levelsOf(walks))
}

// Walks returns the number of walks.
func (h *Holders) Walks() int {
	if h.Before == nil {
		return 1
	}
	return len(h.During) + 2
}

// grownLines returns what grew between two walks that are some time apart.
func grownLines(before, after []HolderLine, between time.Duration) []GrownLine {
	held := func(lines []HolderLine) (list []ledger.Held) {
		for i := range lines {
			list = append(list, lines[i].Held)
		}
		return list
	}
	var list []GrownLine
	for _, g := range ledger.Grown(held(before), held(after)) {
		list = append(list, GrownLine{after[g.Index], g, PerMinute(g.Bytes, uint64(between))})
	}
	return list
}
