// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// awake is what a site's live bytes have memory for.
func awake(x *ledger.Site) uint64 { return minus(x.LiveBytes, x.Asleep) }

// awakeObjects is how many of a site's live objects may have memory. How many of them sleep is not known, unless all do.
func awakeObjects(x *ledger.Site) uint64 {
	if x.Asleep > 0 && awake(x) == 0 {
		return 0
	}
	return x.LiveObjects
}

// asleepSum is what is asleep in all processes, older than the attach or not.
func asleepSum(s *ledger.Snapshot) (sum uint64) {
	for i := range s.Tensors {
		sum += s.Tensors[i].Asleep + s.Tensors[i].OlderAsleep
	}
	return sum
}

// asleepHoldings are the shares of sites that are asleep.
func asleepHoldings(s *ledger.Snapshot) (list []Holding) {
	for i := range s.Sites {
		if x := &s.Sites[i]; x.Asleep > 0 {
			list = append(list, Holding{
				Plane: PlaneAsleep, Mark: markAsleep, Site: x, Live: int64(x.Asleep),
				Process: x.Process, Device: x.Device, UUID: gpuUUID(s, x.Process, x.Device, x.Kind),
			})
		}
	}
	return list
}

// olderAsleep are those of what is older than the attach.
func olderAsleep(s *ledger.Snapshot) (list []Holding) {
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.OlderAsleep > 0 {
			list = append(list, Holding{
				Plane: PlaneAsleep, Mark: markOlderAsleep, Live: int64(t.OlderAsleep),
				Process: t.Process, Device: t.Device, UUID: gpuUUID(s, t.Process, t.Device, ledger.Tensor),
			})
		}
	}
	return list
}

// asleepText is "58.1 GiB of tensors are asleep: PyTorch counts them, but their memory was unmapped", "" without any. Of what is
// older than the attach it is the least that can be.
func asleepText(s *ledger.Snapshot) string {
	sum := asleepSum(s)
	if sum == 0 {
		return ""
	}
	least := ""
	if len(olderAsleep(s)) > 0 {
		least = "at least "
	}
	return least + BytesText(sum) + " of tensors are asleep: PyTorch counts them, but their memory was unmapped"
}

// asleepList gives the sites that have tensors asleep, those with most first.
func asleepList(s *ledger.Snapshot) (list []*ledger.Site) {
	for i := range s.Sites {
		if x := &s.Sites[i]; x.Asleep > 0 {
			list = append(list, x)
		}
	}
	slices.SortStableFunc(list, func(a, b *ledger.Site) int { return cmp.Compare(b.Asleep, a.Asleep) })
	return list
}

// asleepSites writes which lines have tensors asleep.
func asleepSites(p *page, s *ledger.Snapshot, st callstack.Stacks, top int) {
	text := asleepText(s)
	if text == "" {
		return
	}
	list := asleepList(s)
	p.line(plain, 0, "")
	p.paragraph("", text)
	if len(list) > 0 {
		p.line(plain, 0, "")
	}
	for _, x := range list[:min(len(list), top)] {
		stack := frames.Visible(st, x.Stack, x.API)
		p.headLine(plain, pad("-", siteIndent)+pad(BytesText(x.Asleep), 8), stack[frames.Headline(stack)])
		p.list(plain, siteIndent, ", ", append([]string{"of " + BytesText(x.LiveBytes)}, siteOwner(s, x)...)...)
	}
	if n := len(list) - top; n > 0 {
		p.text(plain, siteIndent, counted(uint64(n), "more site"))
	}
}
