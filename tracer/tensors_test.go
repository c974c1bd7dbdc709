// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"math"
	"testing"
)

var reporting = []string{"1.6", "1.13", "2.6", "2.14"}

const (
	plain      = "FAKETORCH_EXPANDABLE=0"
	expandable = "FAKETORCH_EXPANDABLE=1"
)

// busy is a script for two GPUs and several threads, with two stops.
var busy = []string{
	"alloc a 1000", "site 1", "alloc b 3M", "site 2", "alloc c 30M 1", "foreign f 100M", "threads 4", "random 3 5000 2", "end", "free b",
	"totals", "sites", "wait",
	"site 7", "free a", "random 4 10000 2", "threads 3", "repeat 100", "alloc d 70K", "free d", "end", "end", "free_random 2", "empty_cache", "foreign g 2M", "alloc e 5000",
	"totals", "sites", "wait",
}

// TestEveryTensorIsBookedExactly: each version, segments of both sorts, from the beginning and with
// nothing left out.
func TestEveryTensorIsBookedExactly(t *testing.T) {
	m := newMachine(t, 2)
	m.keepTorch(reporting...)
	m.trace(nil)
	for _, version := range reporting {
		for _, segments := range []string{plain, expandable} {
			p := m.follow(version, []string{segments}, busy...)
			for _, stop := range []string{"first", "second"} {
				what := fmt.Sprintf("PyTorch %s, %s, %s stop", version, segments, stop)
				totals, sites := p.totals(), p.sites()
				s := m.snapshot()
				checkTensors(t, what, s, p.pid(), totals, version == "1.6")
				compareSites(t, what, m.tensorSites(s, p.pid()), sites)
				checkParts(t, what, s, p.pid())
				checkLosses(t, s)
				p.next()
			}
			p.Wait()
		}
	}
}

// TestSampledTensorsAddUp: with a sample all sums are exact, and the sites are estimates
// without a bias, whose error is as large as is said: at a fixed rate, and at one that changes.
func TestSampledTensorsAddUp(t *testing.T) {
	t.Run("fixed", func(t *testing.T) { testSampledTensors(t, 0) })
	t.Run("limited", func(t *testing.T) { testSampledTensors(t, 1500) })
}

func testSampledTensors(t *testing.T, limit uint32) {
	const runs = 12
	m := newMachine(t, 1)
	m.keepTorch("2.6")
	m.trace(func(c *Config) { c.Sample, c.SampleLimit = 1<<20, limit })
	squares, sum := 0.0, 0.0
	var halvings uint32
	for run := range runs {
		what := fmt.Sprintf("run %d", run)
		p := m.follow("2.6", nil, fmt.Sprintf("random %d 60000", run+1), "totals", "sites", "wait")
		totals, sites := p.totals(), p.sites()
		s := m.snapshot()
		checkTensors(t, what, s, p.pid(), totals, false)
		got := m.tensorSites(s, p.pid())
		tensors := tensorsOf(t, s, p.pid())[0]
		var all, exact siteCount
		for _, c := range got {
			all = siteCount{all.LiveObjects + c.LiveObjects, all.LiveBytes + c.LiveBytes, all.AllocObjects + c.AllocObjects, all.AllocBytes + c.AllocBytes}
		}
		for _, c := range sites {
			exact = siteCount{exact.LiveObjects + c.LiveObjects, exact.LiveBytes + c.LiveBytes, exact.AllocObjects + c.AllocObjects, exact.AllocBytes + c.AllocBytes}
		}
		said := siteCount{tensors.LiveObjects, tensors.LiveBytes, tensors.AllocObjects, tensors.AllocBytes}
		if all != exact || said != exact {
			t.Errorf("%s: the sites add up to %+v, and the books have %+v; the program %+v", what, all, said, exact)
		}
		if none := got["none cuda:0"].LiveBytes; none > exact.LiveBytes/10 { // classes of which nothing is in the sample: how much they are is chance
			t.Errorf("%s: %d of %d bytes are in no site", what, none, exact.LiveBytes)
		}
		if tensors.Sampled < 20 || tensors.Sampled > tensors.LiveObjects/2 {
			t.Errorf("%s: %d of %d blocks are in the sample", what, tensors.Sampled, tensors.LiveObjects)
		}
		largest := ""
		for key, c := range got {
			if largest == "" || c.LiveBytes > got[largest].LiveBytes {
				largest = key
			}
		}
		z := (float64(got[largest].LiveBytes) - float64(sites[largest].LiveBytes)) / float64(tensors.Error)
		if limit == 0 && tensors.Halvings > 0 {
			t.Errorf("%s: the rate was halved %d times", what, tensors.Halvings)
		}
		halvings += uint32(tensors.Halvings)
		t.Logf("%s: %d of %d blocks sampled; %s: %d MiB ± %d, in truth %d", what, tensors.Sampled, tensors.LiveObjects,
			largest, got[largest].LiveBytes>>20, tensors.Error>>20, sites[largest].LiveBytes>>20)
		if most := 4 + float64(tensors.Halvings); math.Abs(z) > most {
			t.Errorf("%s: it is off by %.1f standard errors", what, z)
		}
		squares, sum = squares+z*z, sum+z
		p.end()
	}
	// Chance leaves these bounds once in 10,000 times. What is in no site makes the others a little
	// low.
	if mean := sum / runs; math.Abs(mean) > 0.5+4/math.Sqrt(runs) {
		t.Errorf("estimates are off by %.2f standard errors on average", mean)
	}
	t.Logf("off by %.2f standard errors on average, rms %.2f", sum/runs, math.Sqrt(squares/runs))
	if rms := math.Sqrt(squares / runs); rms < 0.33 || rms > 2 {
		t.Errorf("the error is %.2f times what is said", rms)
	}
	if limit > 0 && halvings == 0 {
		t.Skip("no run reached the limit: the machine is too slow")
	}
}
