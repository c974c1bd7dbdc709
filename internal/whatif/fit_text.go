// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"io"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/report/format"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// WriteFitText writes what makes each job fit, no wider than columns where sentences can be broken.
func WriteFitText(w io.Writer, r *reportjson.FitReport, columns int) error {
	return writeJobs(w, columns, len(r.Jobs), func(p *page, i int) { p.fitted(&r.Jobs[i], r.GPU) })
}

func (p *page) fitted(x *reportjson.FittedJob, gpu uint64) {
	if len(x.Refused) > 0 {
		p.job(&x.ReplayedReport, gpu)
		return
	}
	own := &x.Scenarios[0]
	p.say(fmt.Sprintf("%s on cuda:%d, as it ran, runs in %s, and reserves %s at most (PyTorch %s, %s).", processOf(&x.ReplayedReport), x.Device, sizes(own.RunsIn), sizes(own.Reserved), x.Torch,
		format.Count(uint64(x.Allocations), "allocation")))
	p.room(&x.ReplayedReport, gpu)
	p.line("")
	if len(x.Steps) == 0 {
		switch x.Verdict {
		case verdicts[Fits]:
			p.say(fmt.Sprintf("It fits in %s without a change.", format.Bytes(gpu)))
		case verdicts[Depends]:
			p.say(fmt.Sprintf("Nothing that vramprof can predict saves 1%%. Whether it fits in %s %s.", format.Bytes(gpu), dependsOn(x.Failures, x.Orders)))
		default:
			p.say("Nothing that vramprof can predict saves 1%: it does not fit.")
		}
	}
	width, wide := 0, 0
	for i := range x.Steps {
		width, wide = min(max(width, format.Width(x.Steps[i].Name)), mostName), max(wide, format.Width(sizes(x.Steps[i].RunsIn)))
	}
	for i := range x.Steps {
		s := &x.Steps[i]
		less := format.Bytes(s.Before.High-min(s.Before.High, s.RunsIn.High)) + " less"
		if rank := fmt.Sprintf("%2d. ", i+1); len(rank)+width+len("  runs in ")+wide+len("  1023 MiB less") > p.columns {
			p.line(rank + format.Cut(s.Name, p.columns-len(rank)))
			p.item("    ", "runs in "+sizes(s.RunsIn)+", "+less)
		} else {
			p.line(rank + format.Pad(format.Cut(s.Name, width), width) + "  runs in " + format.Pad(sizes(s.RunsIn), wide) + "  " + less)
		}
		if s.Remedy != nil {
			p.item("    ", s.Remedy.Advice+".")
		}
	}
	if len(x.Steps) > 0 {
		p.line("")
		with := map[bool]string{true: "it", false: "these"}[len(x.Steps) == 1]
		switch x.Verdict {
		case verdicts[Fits]:
			p.say(fmt.Sprintf("With %s, the program fits in %s.", with, format.Bytes(gpu)))
		case verdicts[Depends]:
			p.say(fmt.Sprintf("With %s, whether the program fits in %s %s.", with, format.Bytes(gpu), dependsOn(x.Failures, x.Orders)))
		default:
			p.say(fmt.Sprintf("Even with %s, the program does not fit in %s: it runs in %s, and PyTorch has %s.", with, format.Bytes(gpu), sizes(x.Steps[len(x.Steps)-1].RunsIn), p.left(x)))
		}
	}
	for _, c := range x.NotTried {
		p.say("Not tried: " + c.Text + ".")
	}
	p.say(fmt.Sprintf("%s replayed, each with up to %d orders of addresses, which the driver decides. Not predicted: time, and what the model learns.", format.Count(uint64(max(x.Tried, 1)), "program"),
		allocsim.Orders))
}

// left is what a GPU has for PyTorch: "20.0 MiB", "none".
func (p *page) left(x *reportjson.FittedJob) string {
	if *x.Capacity == 0 {
		return "none"
	}
	return format.Bytes(*x.Capacity)
}

// dependsOn ends a sentence that begins with "whether it fits".
func dependsOn(failures, orders int) string {
	if failures == orders {
		return "depends on when blocks leave the GPU"
	}
	return fmt.Sprintf("depends on the addresses that the driver gives: it runs out of memory in %d of %d orders of them", failures, orders)
}
