// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// budget halves and doubles the rate of a sample as the kernel half does, but counts blocks instead
// of time.
type budget struct {
	window, sampled, limit uint64
	halvings               uint8
	seen                   [maxHalvings + 1]int
}

// take reports whether a block is in the sample.
func (b *budget) take(rng *rand.Rand, p float64) (halvings uint8, sampled bool) {
	if b.window++; b.window == 50 {
		if b.sampled < b.limit/3 && b.halvings > 0 {
			b.halvings--
		}
		b.window, b.sampled = 0, 0
	}
	halvings = b.halvings
	b.seen[halvings]++
	if rng.Float64() >= p/float64(uint64(1)<<halvings) {
		return halvings, false
	}
	if b.sampled++; b.sampled == b.limit {
		b.halvings = min(b.halvings+1, maxHalvings)
		b.window, b.sampled = 0, 0
	}
	return halvings, true
}

// halvedJob is one life of a program that allocates in bursts of large blocks, from stacks 1 to 4.
type halvedJob struct {
	blocks      []fakeBlock
	freed       map[int]bool
	classes     [SizeClasses]ClassTotals
	live, alloc map[uint64]float64 // bytes by stack
	half        map[uint64]float64 // live after half of the blocks
}

func newHalvedJob(rng *rand.Rand) *halvedJob {
	j := &halvedJob{freed: map[int]bool{}, live: map[uint64]float64{}, alloc: map[uint64]float64{}, half: map[uint64]float64{}}
	const count = 8000
	for i := range count {
		b := fakeBlock{size: 512 * (1 + rng.Uint64N(4)), stack: 1 + rng.Uint64N(4)}
		if i/1000%2 == 1 { // a burst
			b.size *= 8
			b.stack = 1 + rng.Uint64N(4)/3
		}
		j.blocks = append(j.blocks, b)
		j.live[b.stack] += float64(b.size)
		j.alloc[b.stack] += float64(b.size)
		if i < count/2 {
			j.half[b.stack] += float64(b.size)
		}
		c := &j.classes[SizeClass(b.size)]
		c.Allocs++
		c.AllocBytes += b.size
	}
	for i, b := range j.blocks {
		if rng.Uint64N(3) == 0 {
			c := &j.classes[SizeClass(b.size)]
			c.Frees++
			c.FreeBytes += b.size
			j.freed[i] = true
			j.live[b.stack] -= float64(b.size)
		}
	}
	return j
}

// sample books the job with a sample of its own.
func (j *halvedJob) sample(t *testing.T, rng *rand.Rand, p []float64, limit uint64) (*Snapshot, *budget) {
	l, b := New(Options{}), &budget{limit: limit}
	l.Tell(Sampling(p))
	for i, x := range j.blocks {
		halvings, ok := b.take(rng, p[SizeClass(x.size)])
		if !ok {
			continue
		}
		l.Apply(&Event{Op: Alloc, Kind: Tensor, Space: Blocks, PID: 7, Time: 1 + uint64(i)*1e8, Address: 1 + uint64(i), Size: x.size, Stack: x.stack, Halvings: halvings, API: "torch"})
	}
	for i := range j.blocks {
		if j.freed[i] {
			l.Apply(&Event{Op: Free, Space: Blocks, PID: 7, Time: uint64(len(j.blocks)) * 1e8, Address: 1 + uint64(i)})
		}
	}
	l.Tell(TensorReading{Time: 1, Totals: []TensorTotals{{PID: 7, Allocated: 1 << 40, Reserved: 1 << 40, Classes: j.classes[:]}}})
	checkLedger(t, l)
	return l.Snapshot(uint64(len(j.blocks))*1e8, time.Time{}), b
}

// TestChangingRatesLeaveNoBias: over many samples of many programs, with rates that follow earlier
// samples, the estimates of sites are right on average, have the stated errors, and add up to the
// exact totals.
func TestChangingRatesLeaveNoBias(t *testing.T) {
	// with few samples, the weights that add up have a bias
	for limit, most := range map[uint64]float64{12: 0.01, 5: 0.05} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) { testChangingRates(t, limit, most) })
	}
}

func testChangingRates(t *testing.T, limit uint64, most float64) {
	rng := rand.New(rand.NewPCG(7, 9))
	p := make([]float64, SizeClasses)
	for i := range p {
		p[i] = min(1, 512*math.Pow(2, float64(i)/4)/8192)
	}
	const samples = 1000
	var sum, squares float64
	// by stack: sums of estimate - truth of live bytes, allocated bytes, growth
	var off [5][3]float64
	var truth [5]float64
	var seen [maxHalvings + 1]int
	for range samples {
		j := newHalvedJob(rng)
		s, b := j.sample(t, rng, p, limit)
		for i, n := range b.seen {
			seen[i] += n
		}
		var live, alloc uint64
		for _, x := range s.Sites {
			live, alloc = live+x.LiveBytes, alloc+x.AllocBytes
			if x.Stack > 0 {
				want := [3]float64{j.live[x.Stack], j.alloc[x.Stack], j.live[x.Stack] - j.half[x.Stack]}
				for i, got := range [3]float64{float64(x.LiveBytes), float64(x.AllocBytes), float64(x.Growth)} {
					off[x.Stack][i] += got - want[i]
				}
				truth[x.Stack] += j.live[x.Stack]
			}
		}
		if x := s.Tensors[0]; live != x.LiveBytes || alloc != x.AllocBytes {
			t.Fatalf("sites add up to %d live and %d allocated bytes: %+v", live, alloc, x)
		}
		z := (float64(s.Sites[0].LiveBytes) - j.live[s.Sites[0].Stack]) / float64(s.Tensors[0].Error)
		sum, squares = sum+z, squares+z*z
	}
	t.Logf("blocks by halvings %v; z of the largest site: mean %.3f, rms %.3f", seen, sum/samples, math.Sqrt(squares/samples))
	if seen[0] == 0 || seen[1] == 0 || seen[2] == 0 {
		t.Error("the rate did not change")
	}
	if mean := sum / samples; math.Abs(mean) > 4/math.Sqrt(samples) {
		t.Errorf("estimates are off by %.2f standard errors on average", mean)
	}
	if rms := math.Sqrt(squares / samples); rms < 0.85 || rms > 1.15 {
		t.Errorf("estimates are off by %.2f times what is said", rms)
	}
	for stack := 1; stack <= 4; stack++ {
		for i, what := range []string{"live bytes", "allocated bytes", "growth"} {
			most := most
			if what == "growth" { // the lesser of two estimates
				most = max(most, 0.02)
			}
			if x := off[stack][i] / truth[stack]; math.Abs(x) > most {
				t.Errorf("%s of stack %d are off by %.2f %% of its live bytes, on average", what, stack, 100*x)
			}
		}
	}
}
