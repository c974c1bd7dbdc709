// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"path"
	"strconv"

	"github.com/vramprof/vramprof/report/format"
)

// check is one question of a gate: a test case, or a rule of SARIF.
type check struct {
	id, about string
	failed    bool
	text      string // the answer
}

// checks returns the questions that were asked, besides the lines.
func (r *Result) checks() (list []check) {
	if r.Now == nil {
		return nil
	}
	if r.Budget > 0 {
		list = append(list, check{"budget", "GPU memory at the peak is within the budget", r.Over, r.budgetText()})
	}
	if r.Before != nil {
		list = append(list, check{"peak", "GPU memory at the peak is that of the baseline", r.OverPeak, r.peakText()})
	}
	return list
}

func (r *Result) budgetText() string {
	text := fmt.Sprintf("%s of a budget of %s at the peak", format.Bytes(r.Now.Usage), format.Bytes(r.Budget))
	switch {
	case r.Over && r.Now.Least < r.Now.Usage:
		text += fmt.Sprintf("; one process alone had %s", format.Bytes(r.Now.Least))
	case r.Unsure:
		text += fmt.Sprintf(", if processes had their peaks at one moment; one process alone had %s", format.Bytes(r.Now.Least))
	}
	return text
}

func (r *Result) peakText() string {
	text := fmt.Sprintf("%s, %s → %s, at most %s more is allowed", format.Difference(int64(r.Now.Peak)-int64(r.Before.Peak)), format.Bytes(r.Before.Peak),
		format.Bytes(r.Now.Peak), format.Bytes(r.Limit))
	if r.Noise > 0 && r.Noise == r.Limit {
		text += ", as runs of one program differ by so much"
	}
	return text
}

// growthText returns "+1.20 GiB, 3.00 GiB → 4.20 GiB".
func (c *Change) growthText() string {
	text := format.Difference(c.growth()) + ", " + format.Bytes(c.Before) + " → " + format.Bytes(c.Bytes)
	if c.Old != 0 && c.Line.Line != 0 {
		text += fmt.Sprintf(" (line %d before)", c.Old)
	}
	return text
}

// place returns "train.py:88 forward"; of a library without lines "addmm [libtorch_cpu.so.2.6.0]".
func (l *Line) place() string {
	if l.File == "" {
		return l.Function
	}
	if l.Line == 0 && l.Text == "" && !l.Python {
		return l.Function + " [" + path.Base(l.File) + "]"
	}
	if l.Line == 0 {
		return l.File + " " + l.Function
	}
	return l.File + ":" + strconv.Itoa(l.Line) + " " + l.Function
}

// doubts returns what weakens the verdict.
func (r *Result) doubts() (list []string) {
	if r.Now == nil {
		return nil
	}
	if r.Budget > 0 && r.Now.Unread > 0 {
		list = append(list, format.Count(uint64(r.Now.Unread), "process")+" ended before NVML was read: the budget is compared without its context")
	}
	if r.Now.Running > 0 {
		list = append(list, format.Count(uint64(r.Now.Running), "process")+" ran on after the command: their figures are those of its end")
	}
	if r.Now.Error > 0 {
		list = append(list, "stacks of tensors were sampled: a line differs only from three standard errors on (--sample 0 takes each)")
	}
	if r.Before != nil && r.Now.Runs == 1 && r.Before.Runs == 1 {
		list = append(list, "how far runs of one program differ was not measured (--repeat 3 does)")
	}
	return list
}
