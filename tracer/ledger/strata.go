// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"math/bits"
)

// stratum is a run of size classes whose exact totals are divided together among the sites that the
// sample has there. It is one class, unless the rate was lowered: then the sample of a class can be
// too small to divide it.
type stratum struct {
	from, to int // classes
	exact    count
	sample   count   // weighted; of a single class
	expanded float64 // bytes of the sample, each divided by the probability of its class
}

const (
	enoughBlocks = 16 // blocks of the sample in a stratum of several classes
	maxStratum   = 12 // classes: sizes are at most 8 times apart
)

// half selects the half of the books that is divided: live bytes or freed ones.
type half struct {
	sample func(*site) count
	exact  func(*tensorClass) count
	part   func(*share) *count
	// How many unweighted blocks are as good a sample.
	blocks func(s *classSample, halvings uint8) float64
}

var (
	ofLive = &half{
		func(s *site) count { return count{s.liveObjects, s.liveBytes} },
		func(c *tensorClass) count { return c.live },
		func(x *share) *count { return &x.live },
		func(s *classSample, _ uint8) float64 {
			return float64(s.live.objects) * float64(s.live.objects) / float64(max(s.squares, 1))
		},
	}
	ofFreed = &half{
		func(s *site) count { return count{s.allocObjects, s.allocBytes} },
		func(c *tensorClass) count { return c.freed },
		func(x *share) *count { return &x.freed },
		func(s *classSample, halvings uint8) float64 {
			return math.Ldexp(float64(s.freed.objects), -int(halvings))
		},
	}
)

// classSample is what the sample has of one class, weighted.
type classSample struct {
	tensorClass
	squares uint64 // sum of the squared weights of live blocks
}

// sampleOf sums the sample of one class.
func sampleOf(list []*site) (sum classSample) {
	for _, s := range list {
		sum.live.objects += s.liveObjects
		sum.live.bytes += s.liveBytes
		sum.freed.objects += s.allocObjects
		sum.freed.bytes += s.allocBytes
		sum.squares += s.liveSquares
	}
	return sum
}

// strata divides the size classes of a device into strata, from the largest sizes down.
func (v *processView) strata(t *tensors, m *tensorState, byClass *members, h *half) (list []stratum) {
	enough := true
	var blocks float64
	for class := SizeClasses - 1; class >= 0; class-- {
		sample := sampleOf(byClass[class])
		exact := sample.tensorClass
		if m.classes != nil {
			exact = m.classes[class]
		}
		if exact == (tensorClass{}) && sample == (classSample{}) {
			continue
		}
		if n := len(list) - 1; enough || list[n].to-class > maxStratum {
			list = append(list, stratum{to: class + 1})
			blocks = 0
		}
		x := &list[len(list)-1]
		x.from = class
		part, add := h.exact(&sample.tensorClass), h.exact(&exact)
		x.sample = part
		x.exact.objects += add.objects
		x.exact.bytes += add.bytes
		x.expanded += float64(part.bytes) / v.inclusion(class)
		blocks += h.blocks(&sample, t.halvings)
		enough = t.halvings == 0 || blocks >= enoughBlocks
	}
	return list
}

// divide gives each site its share of a stratum. Without any site, all of it goes to rest.
func (v *processView) divide(x *stratum, h *half, byClass *members, shares *[SizeClasses][]share, rest *share) {
	for _, field := range [...]func(*count) *uint64{
		func(c *count) *uint64 { return &c.objects },
		func(c *count) *uint64 { return &c.bytes },
	} {
		var weights []uint64
		var parts []*uint64
		var sum float64
		for class := x.from; class < x.to; class++ {
			for k, s := range byClass[class] {
				c := h.sample(s)
				weights = append(weights, *field(&c))
				parts = append(parts, field(h.part(&shares[class][k])))
				sum += float64(*field(&c)) / v.inclusion(class)
			}
		}
		if x.to-x.from > 1 && sum > 0 { // classes may have different probabilities
			i := 0
			for class := x.from; class < x.to; class++ {
				for range byClass[class] {
					weights[i] = uint64(float64(weights[i]) / v.inclusion(class) / sum * (1 << 52))
					i++
				}
			}
		}
		total := *field(&x.exact)
		list, ok := apportion(total, weights)
		if !ok {
			*field(h.part(rest)) += total
			continue
		}
		for i, n := range list {
			*parts[i] = n
		}
	}
}

// weighted returns what live bytes of the sample stand for, in a class of probability p.
func (x *stratum) weighted(live uint64, p float64) uint64 {
	switch {
	case x.expanded == 0: // no block is live now
		return uint64(min(float64(live)/p, maxTensors))
	case x.to-x.from > 1:
		return uint64(min(float64(live)/p*(float64(x.exact.bytes)/x.expanded), maxTensors))
	}
	hi, lo := bits.Mul64(live, x.exact.bytes)
	if hi >= x.sample.bytes {
		return maxTensors
	}
	live, _ = bits.Div64(hi, lo, x.sample.bytes)
	return min(live, maxTensors)
}

// spread is the variance of the sites' live bytes in one stratum. Under Poisson sampling, in which
// a block was sampled with probability p/w, the estimate of a total's variance is the sum of size^2
// (1-p/w)/(p/w)^2 over its sample (Särndal, Swensson, Wretman: Model Assisted Survey Sampling,
// 3.5). Since the stratum's total is known (poststratification, 7.6 there), a site's part is a
// share r of it: an error of the site itself counts as 1-r of it, and one of all others as r.
type spread struct {
	all   float64 // variance of the total if it were unknown
	bytes float64
	sites map[int]siteSpread
}

type siteSpread struct{ variance, bytes float64 }

// add adds the sample of a site in a class of probability p. Sizes in a class differ by a quarter
// at most, so all are taken as their mean: the sum is size^2 times that of w^2/p^2 - w/p.
func (x *spread) add(at int, s *site, p float64) {
	if s.liveObjects == 0 {
		return
	}
	if x.sites == nil {
		x.sites = map[int]siteSpread{}
	}
	size := float64(s.liveBytes) / float64(s.liveObjects)
	variance := size * size * (float64(s.liveSquares)/(p*p) - float64(s.liveObjects)/p)
	bytes := float64(s.liveBytes) / p
	x.all += variance
	x.bytes += bytes
	sum := x.sites[at]
	x.sites[at] = siteSpread{sum.variance + variance, sum.bytes + bytes}
}

// sum adds the variances to those of other strata. A sample of few blocks is often far from the
// exact total, and so are the sites' parts before they are scaled to add up to it.
func (x *spread) sum(variance map[int]float64, of *stratum) {
	g := 1.0
	if of.to-of.from > 1 {
		g = float64(of.exact.bytes) / of.expanded
	}
	for at, s := range x.sites {
		r := s.bytes / x.bytes
		variance[at] += g * g * ((1-r)*(1-r)*s.variance + r*r*max(x.all-s.variance, 0))
	}
}

// members are the sites of one device by size class.
type members [SizeClasses][]*site
