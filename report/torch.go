// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// torchTable writes what PyTorch's allocator of each process has on each device.
func torchTable(p *page, s *ledger.Snapshot) {
	if len(s.Tensors) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, "PyTorch's allocator: reserved = tensors + cache")
	p.line(plain, 0, "")
	rows := [][]string{{"process", "device", "tensors", "reserved", "cache", "free run"}}
	for i := range s.Tensors {
		t := &s.Tensors[i]
		row := []string{ownerName(s, t.Process, p.firstColumn(len(rows[0])-2)), DeviceName(t.Device, ledger.Tensor)}
		if t.Device == ledger.CPUDevice { // has no such allocator
			rows = append(rows, append(row, BytesText(t.LiveBytes)))
			continue
		}
		rows = append(rows, append(row, BytesText(t.Allocated), BytesText(t.Reserved), BytesText(minus(t.Reserved, t.Allocated)), BytesText(t.LargestFree)))
	}
	p.table(rows)
	p.line(plain, 0, "")
	for _, text := range torchTexts(s) {
		p.paragraph("", text)
	}
}

// torchTexts is, of each process and device, "python3 [42] on cuda:0: at most 50.1 GiB of tensors (after 1m20s);
// a request of 1.20 GiB finds room without growing".
func torchTexts(s *ledger.Snapshot) []string {
	var list []string
	for i := range s.Tensors {
		t := &s.Tensors[i]
		text := processName(&s.Processes[t.Process]) + " on " + DeviceName(t.Device, ledger.Tensor) + ": at most " +
			BytesText(t.Peak) + " of tensors (after " + span(minus(t.PeakTime, s.Begin)) + ")"
		if n := t.Asleep + t.OlderAsleep; n > 0 {
			text += "; " + BytesText(n) + " of tensors are asleep now"
			if cache := minus(minus(t.Reserved, t.Allocated), t.Cached+t.OlderCached); cache > 0 {
				text += ", and " + BytesText(cache) + " of cache, without memory"
			}
		}
		if t.LargestFree > 0 {
			text += "; a request of " + BytesText(t.LargestFree) + " finds room without growing"
		}
		if t.OlderCached > 0 { // where in it is free is not known
			text += "; " + BytesText(t.OlderCached) + " of the cache are older than tracing, and may have room for a larger one"
		}
		list = append(list, text)
	}
	return list
}

// cacheList gives the sites whose segments hold something beyond tensors, largest share first, and the sum.
func cacheList(s *ledger.Snapshot) (list []*ledger.Site, sum uint64) {
	reports := reporters(s)
	for i := range s.Sites {
		if x := &s.Sites[i]; planeOf(x, reports) == PlaneCache && cacheOf(x) > 0 {
			list = append(list, x)
			sum += cacheOf(x)
		}
	}
	slices.SortStableFunc(list, func(a, b *ledger.Site) int { return cmp.Compare(cacheOf(b), cacheOf(a)) })
	return list, sum
}

// cacheSites writes what segments hold beyond their tensors, by the code that needed them.
func cacheSites(p *page, s *ledger.Snapshot, st callstack.Stacks, top int) {
	list, sum := cacheList(s)
	if len(list) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.list(bold, 0, " ", "PyTorch cache, under what made it grow:", BytesText(sum)+",", "kept for later tensors")
	p.line(plain, 0, "")
	for _, x := range list[:min(len(list), top)] {
		stack := frames.Visible(st, x.Stack, x.API)
		p.headLine(plain, pad("-", siteIndent)+pad(BytesText(cacheOf(x)), 8), stack[frames.Headline(stack)])
		owner := []string{"of " + counted(x.LiveObjects, "segment") + " with " + BytesText(x.LiveBytes)}
		p.list(plain, siteIndent, ", ", append(owner, siteOwner(s, x)...)...)
	}
	if n := len(list) - top; n > 0 {
		var rest uint64
		for _, x := range list[top:] {
			rest += cacheOf(x)
		}
		p.text(plain, siteIndent, counted(uint64(n), "more site")+" with "+BytesText(rest))
	}
}

// maxTorchSites bounds how many sites of a process are looked at for PyTorch's allocator.
const maxTorchSites = 20

// segmentsOnly says why nothing is known of the tensors of a process although PyTorch's allocator has live
// memory, "" if it has none or reports. The largest sites have it, if it has any.
func segmentsOnly(s *ledger.Snapshot, st callstack.Stacks, process int) string {
	if reporters(s)[process] {
		return ""
	}
	looked, why := 0, ""
	for i := range s.Sites {
		x := &s.Sites[i]
		if x.Process != process || x.LiveObjects == 0 || !x.Kind.Owned() {
			continue
		}
		if looked++; looked > maxTorchSites || why != "" {
			break
		}
		switch list := frames.Visible(st, x.Stack, x.API); {
		case slices.ContainsFunc(list, isPluggable):
			why = "its pluggable allocator reports none"
		case !x.Segment && !slices.ContainsFunc(list, isTorchCUDA):
		case x.Kind == ledger.Async:
			why = "PyTorch's backend cudaMallocAsync reports none"
		default:
			why = "none were reported, or they were not traced"
		}
	}
	return why
}

func isTorchCUDA(f callstack.Frame) bool {
	return !f.Python && f.Mapping != nil && strings.HasPrefix(path.Base(f.Mapping.Path), "libc10_cuda.")
}

func isPluggable(f callstack.Frame) bool {
	return !f.Python && strings.Contains(f.Function, "CUDAPluggableAllocator")
}
