// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// sized lists size classes in MiB; each sums the relative errors of sites that truly hold at least
// that much, and less than the next.
var sized = []int{4, 16, 64}

// estimates collects the differences between a sample's figures and PyTorch's own.
type estimates struct {
	errors         [][]float64 // relative, by size
	moments, sites int
	wrongTotals    int
}

// add compares the books as of a moment with PyTorch's record of it.
func (e *estimates) add(t *testing.T, truth *state, p *played) {
	t.Helper()
	snapshot, err := p.rec.Snapshot(truth.time)
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string]float64{}, map[string]float64{}
	for _, b := range truth.blocks {
		want[pathOfPlaces(truth.stacks[b.stack])] += float64(b.size)
	}
	for _, x := range snapshot.Sites {
		if x.Kind == ledger.Tensor && x.Device >= 0 {
			got[pathOfStack(p.rec.Stack(x.Stack))] += float64(x.LiveBytes)
		}
	}
	for key, bytes := range want {
		for i := len(sized) - 1; i >= 0; i-- {
			if bytes >= float64(sized[i]<<20) {
				e.errors[i] = append(e.errors[i], math.Abs(got[key]-bytes)/bytes)
				break
			}
		}
	}
	at := slices.IndexFunc(snapshot.Tensors, func(x ledger.Tensors) bool { return x.Device >= 0 })
	if at < 0 {
		t.Fatal("no totals of tensors")
	}
	x := &snapshot.Tensors[at]
	if x.LiveBytes != truth.allocated || x.Allocated != truth.allocated || x.Reserved != truth.reserved {
		e.wrongTotals++
		t.Errorf("the totals are %+v, PyTorch has %d allocated, %d reserved", *x, truth.allocated, truth.reserved)
	}
	e.moments++
	e.sites += len(want)
}

// A site of 16 MiB has 16 blocks in the sample if they are small: a standard error of a quarter.
// With larger blocks, it is smaller.
func TestSampledEstimatesHaveTheReportedError(t *testing.T) {
	needRoot(t)
	if !*long {
		t.Skip("only with -accuracy.long: tests of package tracer check the estimates, this one measures them")
	}
	e := &estimates{errors: make([][]float64, len(sized))}
	for seed := range 4 {
		states, s := runBlocks(t, 10+seed, 6, 300, 2)
		p := s.played()
		for _, truth := range states {
			e.add(t, truth, p)
		}
	}
	results.add(t, "totals of a default sample", fmt.Sprintf("%d moments", e.moments), fmt.Sprintf("%d wrong", e.wrongTotals))
	for i, list := range e.errors {
		n := len(list)
		if n == 0 {
			continue
		}
		slices.Sort(list)
		what := fmt.Sprintf("estimates of a default sample, sites of %d MiB and more", sized[i])
		if i+1 < len(sized) {
			what = fmt.Sprintf("estimates of a default sample, sites of %d to %d MiB", sized[i], sized[i+1])
		}
		results.add(t, what, fmt.Sprintf("%d sites", n), fmt.Sprintf("median error %.1f %%, 90 %% below %.1f %%, all below %.1f %%", 100*list[n/2], 100*list[n*9/10], 100*list[n-1]))
		if most := math.Sqrt(1 / float64(sized[i])); list[n/2] > most {
			t.Errorf("%s: the median is off by %.2f, want at most a standard error, %.2f", what, list[n/2], most)
		}
	}
}

func pathOfPlaces(list []place) string {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "%s %s %d<", p.file, p.function, p.line)
	}
	return b.String()
}

func pathOfStack(stack []callstack.Frame) string {
	var b strings.Builder
	for _, f := range stack {
		if f.Python {
			fmt.Fprintf(&b, "%s %s %d<", filepath.Base(f.File), path.Ext("." + f.Function)[1:], f.Line)
		}
	}
	return b.String()
}
