// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// Two walks see a training at two moments of its steps: at one of them there are gradients and
// activations, at the other there are not. What differs by these has not grown.

// leastLasting is the least share of a holder's memory that must have lasted for the holder to
// count as grown.
const leastLasting = 1.0 / 8

type deviceHolder struct {
	path     string
	device   int32
	gradient bool
}

func deviceHolderOf(h *ledger.Holder, device int32) deviceHolder {
	return deviceHolder{h.Path, device, h.Retention.Has(retention.Gradient)}
}

// young is memory that one holder keeps, as far as a site of tensors has it, and how much of it has
// lasted.
type young struct{ bytes, lasted float64 }

// passing moves holders from Grown to Passing that had little memory for longer than a quarter of
// the time between the walks. Of memory that no site has, which is older than the attach or not in
// the sample, the age is unknown: it counts as grown, unless other gradients come and go.
func (k *Kept) passing(s *ledger.Snapshot) {
	ages := k.ages(s)
	gradients := &young{}
	for key, y := range ages {
		if key.gradient {
			gradients.bytes += y.bytes
			gradients.lasted += y.lasted
		}
	}
	k.Grown = slices.DeleteFunc(k.Grown, func(g GrownLine) bool {
		key := deviceHolderOf(&g.Holder, g.Device)
		y := ages[key]
		if (y == nil || y.bytes < float64(g.By.Bytes)/2) && key.gradient {
			y = gradients
		}
		if y == nil || y.bytes < float64(g.By.Bytes)/2 || y.lasted >= leastLasting*y.bytes {
			return false
		}
		k.Passing = append(k.Passing, g)
		return true
	})
}

// ages returns the ages of what holders keep of the process's sites of tensors.
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
		if x.Process != k.Process || x.Kind != ledger.Tensor || x.Device < 0 || x.LiveBytes == 0 {
			continue
		}
		share, rest := lastedShare(x, begin, before), x.LiveBytes
		for _, h := range x.Holders {
			if h.Holder >= 0 && h.Holder < len(k.held) {
				add(deviceHolderOf(&k.held[h.Holder].Holder, x.Device), min(h.Bytes, rest), share)
				rest -= min(h.Bytes, rest)
			}
		}
		add(deviceHolder{path: NoHolder, device: x.Device}, rest, share)
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
