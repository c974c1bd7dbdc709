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
	p := &page{columns: max(columns, 40)}
	for i := range r.Jobs {
		if i > 0 {
			p.line("")
		}
		p.fitted(&r.Jobs[i], r.GPU)
	}
	_, err := io.WriteString(w, p.text.String())
	return err
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
		if x.Fits {
			p.say(fmt.Sprintf("It fits in %s without a change.", format.Bytes(gpu)))
		} else {
			p.say("Nothing that vramprof can predict saves 1 %: it does not fit.")
		}
	}
	width, wide := 0, 0
	for i := range x.Steps {
		width, wide = min(max(width, format.Width(x.Steps[i].Name)), mostName), max(wide, format.Width(sizes(x.Steps[i].RunsIn)))
	}
	for i := range x.Steps {
		s := &x.Steps[i]
		p.line(fmt.Sprintf("%2d. %s  runs in %s  %s less", i+1, format.Pad(format.Cut(s.Name, width), width), format.Pad(sizes(s.RunsIn), wide), format.Bytes(s.Before.High-min(s.Before.High, s.RunsIn.High))))
		if s.Remedy != nil {
			p.item("    ", s.Remedy.Advice+".")
		}
	}
	if len(x.Steps) > 0 {
		p.line("")
		if x.Fits {
			p.say(fmt.Sprintf("With %s, the program fits in %s.", map[bool]string{true: "it", false: "these"}[len(x.Steps) == 1], format.Bytes(gpu)))
		} else {
			p.say(fmt.Sprintf("It does not fit in %s, even with all of them.", format.Bytes(gpu)))
		}
	}
	for _, c := range x.NotTried {
		p.say("Not tried: " + c.Text + ".")
	}
	p.say(fmt.Sprintf("%s replayed, each with up to %d orders of addresses, which the driver decides. Not predicted: time, and what the model learns.", format.Count(uint64(max(x.Tried, 1)), "program"),
		allocsim.Orders))
}
