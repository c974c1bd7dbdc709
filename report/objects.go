// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	// The driver allocates pages of 2 MiB: a smaller growth means nothing.
	littleUnexplained = 2 << 20
	maxGrownSites     = 3 // most sites that a sentence names
)

// GrewWith lists the driver objects of a process and GPU that were made while unexplained memory
// grew, most first. With only, the process is on no other GPU.
func GrewWith(s *ledger.Snapshot, x *ledger.Part, only bool) (list []*ledger.Object) {
	if x.Unexplained <= littleUnexplained || s.Processes[x.Process].End != 0 {
		return nil
	}
	for i := range s.Objects {
		if o := &s.Objects[i]; o.Live > o.Before && isOn(s, o, x, only) {
			list = append(list, o)
		}
	}
	slices.SortStableFunc(list, func(a, b *ledger.Object) int { return cmp.Compare(b.Live-b.Before, a.Live-a.Before) })
	return list
}

// isOn reports whether an object is on the GPU of a part. With only, the process is on no other
// GPU.
func isOn(s *ledger.Snapshot, o *ledger.Object, x *ledger.Part, only bool) bool {
	if o.Process != x.Process {
		return false
	}
	b := s.BalanceOf(o.Process, o.Device)
	return b >= 0 && s.Balances[b].UUID == x.UUID || b < 0 && only
}

// IsOnlyPart reports whether a process has no other part.
func IsOnlyPart(list []ledger.Part, x *ledger.Part) bool {
	n := 0
	for i := range list {
		if list[i].Process == x.Process {
			n++
		}
	}
	return n == 1
}

// objectText is a sentence on a process and GPU, with the bytes that it explains.
type objectText struct {
	bytes uint64
	text  string
}

// objectTexts returns "python3 [42] on cuda:0: while what is unexplained grew to 120 MiB it made 12
// graph executables at train.py:55 capture", and likewise for the context part. A context alone is
// not reported.
func objectTexts(s *ledger.Snapshot, st callstack.Stacks) []string {
	parts := s.Parts()
	var unexplained, context []objectText
	for i := range parts {
		x := &parts[i]
		only := IsOnlyPart(parts, x)
		who := format.Process(&s.Processes[x.Process])
		if x.Device >= 0 {
			who += " on " + format.Device(x.Device, ledger.Device)
		}
		if grown := GrewWith(s, x, only); len(grown) > 0 {
			n := uint64(x.Unexplained)
			text := fmt.Sprintf("%s: while what is unexplained grew to %s it made %s", who, format.Bytes(n),
				objectList(st, grown, func(o *ledger.Object) uint64 { return o.Live - o.Before }))
			if x.Internal == 0 {
				text += " (--driver-objects gives their bytes)"
			}
			unexplained = append(unexplained, objectText{n, text})
		}
		if before := inContextPart(s, x, only); len(before) > 0 {
			context = append(context, objectText{x.Foreign, fmt.Sprintf("%s: context, other before attach (%s) includes %s", who, format.Bytes(x.Foreign),
				objectList(st, before, func(o *ledger.Object) uint64 { return o.Before }))})
		}
	}
	return append(mostTexts(unexplained, "more unexplained part"),
		mostTexts(context, "more context part")...)
}

const maxObjectTexts = 6 // for each part; the JSON has all

// mostTexts keeps the sentences on the most bytes, and adds the number of the others.
func mostTexts(list []objectText, others string) (texts []string) {
	slices.SortStableFunc(list, func(a, b objectText) int { return cmp.Compare(b.bytes, a.bytes) })
	for i := range list[:min(len(list), maxObjectTexts)] {
		texts = append(texts, list[i].text)
	}
	if more := len(list) - maxObjectTexts; more > 0 {
		texts = append(texts, format.Count(uint64(more), others)+" (vramprof leaks --json lists all)")
	}
	return texts
}

// inContextPart lists the objects in the context part of a process and GPU, unless that is one
// context.
func inContextPart(s *ledger.Snapshot, x *ledger.Part, only bool) (list []*ledger.Object) {
	if x.Foreign == 0 || s.Processes[x.Process].End != 0 {
		return nil
	}
	var contexts, others uint64
	for i := range s.Objects {
		o := &s.Objects[i]
		if o.Before == 0 || !isOn(s, o, x, only) {
			continue
		}
		list = append(list, o)
		if o.Kind == ledger.DriverContext {
			contexts += o.Before
		} else {
			others += o.Before
		}
	}
	if contexts <= 1 && others == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b *ledger.Object) int { return cmp.Compare(b.Before, a.Before) })
	return list
}

// objectList returns "12 graph executables at train.py:55 capture, 3 modules (4.00 MiB of code) at
// kernels.py:9 compile, 5 more".
func objectList(st callstack.Stacks, list []*ledger.Object, count func(*ledger.Object) uint64) string {
	var parts []string
	for _, o := range list[:min(len(list), maxGrownSites)] {
		text := format.Count(count(o), format.Kind(o.Kind))
		if o.Bytes > 0 && count(o) == o.Live { // Bytes is of all live objects
			text += " (" + format.Bytes(o.Bytes) + " of code)"
		}
		parts = append(parts, text+" at "+LineText(st, o.Stack, o.API))
	}
	var more uint64
	for _, o := range list[min(len(list), maxGrownSites):] {
		more += count(o)
	}
	if more > 0 {
		parts = append(parts, format.Count(more, "more object"))
	}
	return strings.Join(parts, ", ")
}
