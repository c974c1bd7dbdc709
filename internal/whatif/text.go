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
	return writeJobs(w, columns, len(r.Jobs), func(p *page, i int) { p.job(&r.Jobs[i], r.GPU) })
}

// writeJobs writes a page of n jobs, with an empty line between them.
func writeJobs(w io.Writer, columns, n int, write func(p *page, i int)) error {
	p := &page{columns: max(columns, 20)}
	for i := range n {
		if i > 0 {
			p.line("")
		}
		write(p, i)
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
	for _, word := range format.Words(text) {
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

const mostName = 44 // columns of a scenario's name

// table writes a row for each scenario; where the screen is too narrow, a name and its figures
// below it.
func (p *page) table(x *reportjson.ReplayedReport, gpu uint64) {
	on := ""
	if gpu > 0 {
		on = "on " + format.Bytes(gpu)
	}
	rows := [][4]string{{"", "reserves at most", "runs in", on}}
	for i := range x.Scenarios {
		s := &x.Scenarios[i]
		rows = append(rows, [4]string{format.Cut(s.Name, mostName), sizes(s.Reserved), sizes(s.RunsIn), verdict(s)})
	}
	if len(x.Scenarios) > 0 {
		rows = append(rows, [4]string{asItRan + ", tensors alone", format.Bytes(x.Scenarios[0].Allocated), "", ""})
	}
	var widths [4]int
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], format.Width(cell))
		}
	}
	if widths[0]+widths[1]+widths[2]+widths[3]+6 > p.columns {
		p.stacked(rows)
		return
	}
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += format.Pad(cell, widths[i]) + "  "
		}
		p.line(line)
	}
}

// stacked writes rows below each other, each figure with its title:
//
//	expandable_segments:True
//	    reserves at most 40.0 MiB, runs in 40.0 MiB, on 64.0 MiB: fits
func (p *page) stacked(rows [][4]string) {
	for _, row := range rows[1:] {
		p.line(format.Cut(row[0], p.columns))
		text := rows[0][1] + " " + row[1]
		if row[2] != "" {
			text += ", " + rows[0][2] + " " + row[2]
		}
		if row[3] != "" {
			text += ", " + rows[0][3] + ": " + row[3]
		}
		p.item("    ", text)
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
		least := ""
		if own.Reserved.Low != own.Reserved.High || best.Reserved.Low != best.Reserved.High {
			least = "at least "
		}
		p.say(fmt.Sprintf("%s reserves %s%s less: %s instead of %s.", best.Name, least, format.Bytes(own.Reserved.Low-best.Reserved.High), sizes(best.Reserved), sizes(own.Reserved)))
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
		p.say(fmt.Sprintf("What a changed program reserves depends on each block, so its range begins with what it runs in, and is over sizes that differ by up to %d%%.", 100/variedBy))
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
	switch {
	case x.Other != nil && *x.Capacity == 0:
		p.say(fmt.Sprintf("Of %s, nothing remains for PyTorch: the process had up to %s besides (context, other libraries).", format.Bytes(gpu), format.Bytes(*x.Other)))
	case x.Other != nil:
		p.say(fmt.Sprintf("Of %s, %s remain for PyTorch: the process had up to %s besides (context, other libraries).", format.Bytes(gpu), format.Bytes(*x.Capacity), format.Bytes(*x.Other)))
	default:
		p.say(fmt.Sprintf("%s are taken as memory for PyTorch alone: the CUDA context and other libraries, of which the file does not tell, come on top.", format.Bytes(gpu)))
	}
}

func (p *page) onGPU(x *reportjson.ReplayedReport, gpu uint64) {
	p.room(x, gpu)
	if own := &x.Scenarios[0]; own.Allocated > *x.Capacity {
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
