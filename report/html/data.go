// SPDX-License-Identifier: Apache-2.0

package html

import (
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/ranks"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

func newPayload(in *Input) *payload {
	s := in.Snapshot
	b := &builder{in: in, s: s, strings: map[string]int{}, gpus: map[string]int{}, frames: map[frameKey]int{}, known: map[callstack.Frame]int{}, stacks: map[stackKey]stack{}}
	texts := report.NewTexts(s, in.Stacks)
	b.p = &payload{
		Version: 1, Title: shorten(untrusted.Clean(in.Title)), Host: shorten(untrusted.Clean(s.Host)),
		Until: s.Wall.UTC().Format("2006-01-02 15:04:05 UTC"), Wall: s.Wall.UnixMilli(), Traced: format.Span(since(s.End, s.Begin)), End: since(s.End, s.Begin),
		Strings: []string{}, Planes: planes, Apart: report.PlanesApart, Processes: []processData{}, GPUs: []gpuData{}, Verdicts: in.Verdicts != nil, Balance: []string{}, Advice: []string{},
		Remarks: list(texts.Remarks), Doubts: []string{}, Warnings: list(texts.Warnings),
	}
	if in.Judged != 0 && since(s.End, in.Judged) >= uint64(time.Second) {
		b.p.Judged = s.Wall.Add(-time.Duration(since(s.End, in.Judged))).UnixMilli()
	}
	for _, text := range in.Balance {
		b.p.Balance = append(b.p.Balance, untrusted.Clean(text))
	}
	for _, text := range in.Advice {
		b.p.Advice = append(b.p.Advice, untrusted.Clean(text))
	}
	if b.p.Title == "" {
		b.p.Title = "vramprof"
		if b.p.Host != "" {
			b.p.Title += ": " + b.p.Host
		}
	}
	b.text("")
	b.frame(frameKey{name: "all", class: rootClass})
	jobs := ranks.New(s)
	for i := range s.Processes {
		if n := b.addProcess(&s.Processes[i]); jobs.Size(i) > 1 {
			b.p.Processes[n].Job = jobs.Of(i) + 1
		}
	}
	for i := range s.GPUs {
		b.addGPU(&s.GPUs[i])
	}
	if in.Timeline != nil && len(in.Timeline.Times) > 0 {
		b.over = newOverTime(b, in.Timeline)
	}
	b.kept = newKept(b)
	b.addDoubts()
	b.addHoldings()
	if b.over != nil {
		b.over.addRests()
		b.p.Chart = b.over.chart()
		b.p.Opening = b.over.opening()
	}
	b.kept.write()
	b.p.Before = b.frames[frameKey{name: markBefore, class: int(frames.Remark)}]
	b.addParts()
	b.addSteps()
	order := b.tree.columns(b.entries, &b.p.Tree)
	b.columns(order)
	b.p.Live = newLive(in)
	return b.p
}

// addDoubts adds the doubts, but for those that the page shows beside who keeps memory.
func (b *builder) addDoubts() {
	for _, d := range report.Doubts(b.s) {
		if d.At != report.AtTitle && (!d.At.AboutHolders() || b.kept == nil) {
			b.p.Doubts = append(b.p.Doubts, d.Text)
		}
	}
}

func (b *builder) addParts() {
	b.p.Parts = partsData{Names: []string{}, Planes: []string{}, Rows: []partData{}, Purposes: b.purposes()}
	parts := b.s.Parts()
	var of []int
	for i := range parts {
		of = append(of, parts[i].Process)
	}
	for i := range report.PartTerms {
		x := &report.PartTerms[i]
		b.p.Parts.Names, b.p.Parts.Planes = append(b.p.Parts.Names, x.In(b.s, of...)), append(b.p.Parts.Planes, x.Plane)
	}
	b.p.Parts.Names, b.p.Parts.Planes = append(b.p.Parts.Names, "unexplained"), append(b.p.Parts.Planes, report.PlaneUnexplained)
	for i := range parts {
		x := &parts[i]
		lines, usage := report.PartLines(x)
		row := partData{Process: x.Process, GPU: b.gpu(x.UUID, x.Device), Usage: usage, Beyond: x.Beyond(), Idle: min(b.s.Balances[i].Idle, x.Rounding)}
		for _, l := range lines {
			row.Lines = append(row.Lines, l.Bytes)
		}
		b.p.Parts.Rows = append(b.p.Parts.Rows, row)
	}
}
