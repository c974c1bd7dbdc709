// SPDX-License-Identifier: Apache-2.0

package text

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// asleepSites writes the lines that have tensors asleep.
func asleepSites(p *page, s *ledger.Snapshot, st callstack.Stacks, top int) {
	text := report.AsleepText(s)
	if text == "" {
		return
	}
	list := report.AsleepSites(s)
	p.line(plain, 0, "")
	p.paragraph("", text)
	if len(list) > 0 {
		p.line(plain, 0, "")
	}
	for _, x := range list[:min(len(list), top)] {
		stack := frames.Visible(st, x.Stack, x.API)
		p.headLine(plain, format.Pad("-", siteIndent)+format.Pad(format.Bytes(x.Asleep), 8), stack[frames.Headline(stack)])
		p.list(plain, siteIndent, ", ", append([]string{"of " + format.Bytes(x.LiveBytes)}, siteOwner(s, x)...)...)
	}
	if n := len(list) - top; n > 0 {
		p.text(plain, siteIndent, format.Count(uint64(n), "more site"))
	}
}

// torchTable writes the state of PyTorch's allocator of each process and device.
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
		row := []string{ownerName(s, t.Process, p.firstColumn(len(rows[0])-2)), format.Device(t.Device, ledger.Tensor)}
		if t.Device == ledger.CPUDevice { // has no such allocator
			rows = append(rows, append(row, format.Bytes(t.LiveBytes)))
			continue
		}
		rows = append(rows, append(row, format.Bytes(t.Allocated), format.Bytes(t.Reserved), format.Bytes(report.Minus(t.Reserved, t.Allocated)), format.Bytes(t.LargestFree)))
	}
	p.table(rows)
	p.line(plain, 0, "")
	for _, text := range report.TorchTexts(s) {
		p.paragraph("", text)
	}
}

// cacheSites writes PyTorch's cache by the code that made it grow.
func cacheSites(p *page, s *ledger.Snapshot, st callstack.Stacks, top int) {
	list, sum := report.CacheSites(s)
	if len(list) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.list(bold, 0, " ", "PyTorch cache, under what made it grow:", format.Bytes(sum)+",", "kept for later tensors")
	p.line(plain, 0, "")
	for _, x := range list[:min(len(list), top)] {
		stack := frames.Visible(st, x.Stack, x.API)
		p.headLine(plain, format.Pad("-", siteIndent)+format.Pad(format.Bytes(report.CacheBytes(x)), 8), stack[frames.Headline(stack)])
		owner := []string{"of " + format.Count(x.LiveObjects, "segment") + " with " + format.Bytes(x.LiveBytes)}
		p.list(plain, siteIndent, ", ", append(owner, siteOwner(s, x)...)...)
	}
	if n := len(list) - top; n > 0 {
		var rest uint64
		for _, x := range list[top:] {
			rest += report.CacheBytes(x)
		}
		p.text(plain, siteIndent, format.Count(uint64(n), "more site")+" with "+format.Bytes(rest))
	}
}
