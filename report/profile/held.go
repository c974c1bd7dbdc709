// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// held divides a sample by who keeps its memory, with the label "holder". What was ever allocated
// stays in a sample without the label. Memory from before the attach has no stack of its own, so
// the path stands in for it: "[before attach: pytorch allocated]", "__main__", "model", "weight".
func (b *builder) held(s *ledger.Snapshot, k *report.Kept, h *report.Holding, x *profile.Sample) []*profile.Sample {
	shares := k.Divide(s, h)
	if shares == nil {
		return []*profile.Sample{x}
	}
	var list []*profile.Sample
	objects, bytes := x.Value[2], x.Value[3]
	if x.Value[0] != 0 || x.Value[1] != 0 {
		rest := *x
		rest.Value = []int64{x.Value[0], x.Value[1], 0, 0, 0, 0}
		list = append(list, &rest)
	}
	for i := range shares {
		part := *x
		part.Value = []int64{0, 0, 0, int64(shares[i].Bytes), 0, 0}
		part.Value[2] = portion(objects, part.Value[3], bytes)
		objects, bytes = objects-part.Value[2], bytes-part.Value[3]
		part.Label = maps.Clone(x.Label)
		part.Label["holder"] = []string{shares[i].Name()}
		if line := shares[i].Line; line != nil && h.IsNameless() {
			part.Location = append(b.pathStack(line.Frames), x.Location...)
		}
		list = append(list, &part)
	}
	return list
}

// pathStack returns the frames of a path, leaf first.
func (b *builder) pathStack(path []string) []*profile.Location {
	list := make([]callstack.Frame, 0, len(path))
	for _, name := range slices.Backward(path) {
		list = append(list, callstack.Frame{Function: name, Mark: true})
	}
	return b.stack(list)
}

// portion returns the share of objects in part of whole bytes, rounded. What is left of both is
// for later parts, so that all add up.
func portion(objects, part, whole int64) int64 {
	if objects <= 0 || part <= 0 || whole <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(objects), uint64(min(part, whole)))
	lo, carry := bits.Add64(lo, uint64(whole)/2, 0)
	n, _ := bits.Div64(hi+carry, lo, uint64(whole)) // objects fit 63 bits, so the share does
	return min(int64(n), objects)
}
