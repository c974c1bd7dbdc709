// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/purpose/phase"
)

// PhaseText returns how reports call a phase: "optimizer step".
func PhaseText(p phase.Phase) string {
	switch p {
	case phase.Unknown:
		return "other"
	case phase.Step:
		return "optimizer step"
	}
	return p.String()
}

// Letter returns the sign of a phase in curves.
func Letter(p phase.Phase) byte {
	const letters = ".mdFEBBSz"
	if int(p) < len(letters) {
		return letters[p]
	}
	return '.'
}

// Text returns "24 steps of 42ms, certain by optimizer.step at train.py:45", and what is to be
// known of them.
func (s *Steps) Text() string {
	text := format.Count(s.Count, "step")
	if s.Each > 0 {
		text += " of " + format.Span(s.Each)
	}
	text += ", " + s.sure() + " by " + s.evidence()
	if s.Passes > 1 {
		text += fmt.Sprintf(", each of %d backward passes", s.Passes)
	}
	switch {
	case s.By == Optimizer && s.Sure == Likely:
		text += "; some may be missing, since tensors are sampled (--sample 0 takes all)"
	case s.By == Period:
		text += "; a step that accumulates gradients would count as several"
	}
	if s.Partial {
		text += "; the first began before the attach"
	}
	if s.Open {
		text += "; the next is under way"
	}
	return text
}

func (s *Steps) sure() string {
	if s.Sure == Guess {
		return "guessed"
	}
	return s.Sure.String()
}

func (s *Steps) evidence() string {
	switch s.By {
	case ZeroGrad:
		return "gradients that are dropped (zero_grad)"
	case Period:
		return "forward and backward passes"
	}
	var lines []string
	for i := range s.Optimizers {
		f := &s.Optimizers[i]
		if line := untrusted.Clean(path.Base(f.File)); f.File != "" && f.Line > 0 {
			lines = append(lines, line+":"+strconv.Itoa(f.Line))
		}
	}
	if len(lines) == 0 {
		return s.By.String()
	}
	return s.By.String() + " at " + strings.Join(lines, ", ")
}

// Name returns "step 17", or "between" for what ran between two steps.
func (p *Place) Name() string {
	if p.Between {
		return "between"
	}
	return fmt.Sprintf("step %d", p.Step)
}

// PlaceText returns "in step 17 of 24, in backward", "in evaluation after step 6 of 12".
func (s *Steps) PlaceText(p Place) string {
	of := fmt.Sprintf("step %d of %d", p.Step, s.Count)
	switch {
	case p.Between && p.Step == 0:
		return "in " + PhaseText(p.Phase) + " before step 1"
	case p.Between:
		return "in " + PhaseText(p.Phase) + " after " + of
	case p.Open:
		of = fmt.Sprintf("step %d, which is under way", p.Step)
	}
	if p.Detail == nil {
		return "in " + of
	}
	return "in " + of + ", in " + PhaseText(p.Phase)
}

// SkippedText says that no steps were looked for; "" if they were.
func (s *Session) SkippedText() string {
	if s == nil || s.Skipped == 0 {
		return ""
	}
	return fmt.Sprintf("Steps were not looked for: the capture has %d million events. vramprof explain looks in up to %d million.", s.Skipped/1e6, MaxEvents/1_000_000)
}

// MaxEvents is the most events of a capture in which explain looks for steps.
const MaxEvents = 20_000_000
