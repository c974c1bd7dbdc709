// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"io"
	"strings"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/report/format"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// WriteText writes the replays as a table for each job, no wider than columns where sentences can
// be broken.
func WriteText(w io.Writer, r *reportjson.WhatIfReport, columns int) error {
	p := &page{columns: max(columns, 40)}
	for i := range r.Jobs {
		if i > 0 {
			p.line("")
		}
		p.job(&r.Jobs[i], r.GPU)
	}
	_, err := io.WriteString(w, p.text.String())
	return err
}

type page struct {
	text    strings.Builder
	columns int
}

func (p *page) line(text string) { p.text.WriteString(strings.TrimRight(text, " ") + "\n") }

// say writes a sentence, broken between words.
func (p *page) say(text string) { p.item("", text) }

// item writes a sentence behind a sign, below whose end its other lines begin.
func (p *page) item(sign, text string) {
	line, before := "", sign
	flush := func() {
		p.line(before + line)
		line, before = "", strings.Repeat(" ", format.Width(sign))
	}
	for _, word := range strings.Fields(text) {
		if line != "" && format.Width(before)+format.Width(line)+1+format.Width(word) > p.columns {
			flush()
		}
		line = strings.TrimSpace(line + " " + word)
	}
	flush()
}

func (p *page) job(x *reportjson.ReplayedReport, gpu uint64) {
	name := processOf(x)
	if len(x.Refused) > 0 {
		p.say(fmt.Sprintf("%s on cuda:%d cannot be replayed:", name, x.Device))
		for _, c := range x.Refused {
			p.item("  - ", c.Text+".")
			if c.Remedy != "" {
				p.item("    → ", c.Remedy)
			}
		}
		return
	}
	own := x.Settings
	if own == "" {
		own = "default settings"
	}
	p.say(fmt.Sprintf("What if %s on cuda:%d had run otherwise (PyTorch %s, %s, %s)", name, x.Device, x.Torch, own, format.Count(uint64(x.Allocations), "allocation")))
	p.say(fmt.Sprintf("Own settings, replayed: reserved as recorded, to the byte, after %s.", format.Count(uint64(x.Equal), "operation")))
	p.line("")
	p.table(x, gpu)
	p.line("")
	p.advice(x)
	p.sentences(x, gpu)
}

const (
	mostName = 44 // columns of a scenario's name
	ranged   = 22 // of a range of sizes
)

func (p *page) table(x *reportjson.ReplayedReport, gpu uint64) {
	width := len("tensors alone")
	for i := range x.Scenarios {
		width = min(max(width, format.Width(x.Scenarios[i].Name)), mostName)
	}
	row := func(cells ...string) {
		p.line(format.Pad(cells[0], width) + "  " + format.Pad(cells[1], ranged) + "  " + format.Pad(cells[2], ranged) + "  " + cells[3])
	}
	on := ""
	if gpu > 0 {
		on = "on " + format.Bytes(gpu)
	}
	row("", "reserves at most", "runs in", on)
	for i := range x.Scenarios {
		s := &x.Scenarios[i]
		row(format.Cut(s.Name, width), sizes(s.Reserved), sizes(s.RunsIn), verdict(s))
	}
	if len(x.Scenarios) > 0 {
		row("tensors alone", format.Bytes(x.Scenarios[0].Allocated), "", "")
	}
}

// sizes writes a range: "2.54 to 2.55 GiB", "900 MiB to 1.1 GiB", "2.18 GiB".
func sizes(r reportjson.RangeReport) string {
	low, high := format.Bytes(r.Low), format.Bytes(r.High)
	if r.Low == r.High {
		return high
	}
	if low == high {
		return fmt.Sprintf("%s to %s MiB", format.Digits(fmt.Sprint(r.Low/mib)), format.Digits(fmt.Sprint((r.High+mib-1)/mib)))
	}
	number, unit, _ := strings.Cut(low, " ")
	if strings.HasSuffix(high, " "+unit) {
		return number + " to " + high
	}
	return low + " to " + high
}

func verdict(s *reportjson.ScenarioReport) string {
	switch s.Verdict {
	case verdicts[Fits]:
		return "fits"
	case verdicts[Depends]:
		if s.Failures == s.Orders {
			return "depends on when blocks leave"
		}
		return fmt.Sprintf("depends: fails in %d of %d orders", s.Failures, s.Orders)
	case verdicts[OutOfMemory]:
		where := ""
		if s.FailedStep > 0 {
			where = fmt.Sprintf(" in step %d", s.FailedStep)
		}
		return "out of memory" + where
	}
	return ""
}

// leastSaving is the share of the reserved memory, in percent, from which a setting is worth a
// sentence.
const leastSaving = 2

func (p *page) sentences(x *reportjson.ReplayedReport, gpu uint64) {
	own := &x.Scenarios[0]
	if best := bestOf(x); best != nil {
		p.say(fmt.Sprintf("%s reserves %s less: %s instead of %s.", best.Name, format.Bytes(own.Reserved.Low-best.Reserved.High), sizes(best.Reserved), sizes(own.Reserved)))
	}
	if own.RunsIn.High < own.Reserved.Low {
		p.say(fmt.Sprintf("As it ran, it runs in %s: PyTorch gives its cache back before it fails.", sizes(own.RunsIn)))
	}
	if gpu > 0 {
		p.onGPU(x, gpu)
	}
	ranges, changed := false, false
	for i := range x.Scenarios {
		s := &x.Scenarios[i]
		changed = changed || len(s.Remedies) > 0
		ranges = ranges || s.Reserved.Low != s.Reserved.High || s.RunsIn.Low != s.RunsIn.High || s.Verdict == verdicts[Depends]
	}
	if ranges {
		p.say(fmt.Sprintf("A range is over %d orders of addresses, which the driver decides.", allocsim.Orders))
	}
	if changed {
		p.say(fmt.Sprintf("What a changed program reserves depends on each block, so its range begins with what it runs in, and is over sizes that differ by up to %d %%.", 100/variedBy))
	}
	if x.Late {
		p.say("The history begins with the running allocator, so only its own settings are replayed. For others, record from the program's start.")
	}
	p.say("Not predicted: time, and memory of other libraries.")
}

// processOf names the process of a job: "python3 [4711]".
func processOf(x *reportjson.ReplayedReport) string {
	name := x.Command
	if name == "" {
		name = "the program"
	}
	if x.PID > 0 {
		name += fmt.Sprintf(" [%d]", x.PID)
	}
	return name
}

// room names what a GPU has for PyTorch.
func (p *page) room(x *reportjson.ReplayedReport, gpu uint64) {
	if x.Other != nil {
		p.say(fmt.Sprintf("Of %s, %s remain for PyTorch: the process had up to %s besides (context, other libraries).", format.Bytes(gpu), format.Bytes(x.Capacity), format.Bytes(*x.Other)))
	} else {
		p.say(fmt.Sprintf("%s are taken as memory for PyTorch alone: the CUDA context and other libraries, of which the file does not tell, come on top.", format.Bytes(gpu)))
	}
}

func (p *page) onGPU(x *reportjson.ReplayedReport, gpu uint64) {
	p.room(x, gpu)
	if own := &x.Scenarios[0]; own.Allocated > x.Capacity {
		p.say(fmt.Sprintf("No setting helps: its tensors alone need %s.", format.Bytes(own.Allocated)))
	}
	for i := range x.Scenarios {
		if s := &x.Scenarios[i]; s.FailedLine != "" {
			p.say(fmt.Sprintf("%s it runs out of memory after %s, in %s.", lead(s.Name), format.Count(uint64(s.FailedAfter), "allocation"), s.FailedLine))
			break
		}
	}
}

func lead(name string) string {
	if name == asItRan {
		return "As it ran,"
	}
	return "With " + name + ","
}

// bestOf returns the setting that saves most in each order, or nil.
func bestOf(x *reportjson.ReplayedReport) (best *reportjson.ScenarioReport) {
	own := &x.Scenarios[0]
	for i := range x.Scenarios[1:] {
		s := &x.Scenarios[i+1]
		if s.Reserved.High*100 > own.Reserved.Low*(100-leastSaving) {
			continue
		}
		if best == nil || s.Reserved.High < best.Reserved.High {
			best = s
		}
	}
	return best
}
