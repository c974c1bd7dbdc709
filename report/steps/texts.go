// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

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

// Brief returns "24 steps of 42ms (22.9 a second)"; "at least 24 steps of 42ms" where some may be
// missing.
func (s *Steps) Brief() string {
	text := format.Count(s.Count, "step")
	if s.Lossy || s.By == Optimizer && !s.isExact() {
		text = "at least " + text
	}
	if s.Each > 0 {
		text += " of " + format.Span(s.Each)
	}
	if pace := s.PaceText(); pace != "" {
		text += " (" + pace + ")"
	}
	return text
}

// OnDevice returns "24 steps of 42ms (22.9 a second), peak of tensors 160 MiB in step 17 of 24, in
// backward; tensors grow 12.0 MiB a step".
func (s *Steps) OnDevice(device int32) string {
	text := s.Brief()
	if peak := s.PeakText(device); peak != "" {
		text += ", " + peak
	}
	if grows := s.GrowthText(device); grows != "" {
		text += "; " + grows
	}
	return text
}

// PeakText returns "peak of tensors 160 MiB in step 17 of 24, in backward"; "" where it is unknown.
func (s *Steps) PeakText(device int32) string {
	if k := s.Index(device); k >= 0 {
		if peak, bytes, ok := s.Peak(k); ok {
			return "peak of tensors " + format.Bytes(bytes) + " " + s.PlaceText(peak)
		}
	}
	return ""
}

// GrowthText returns "tensors grow 12.0 MiB a step"; "" where they do not, or it is unknown.
func (s *Steps) GrowthText(device int32) string {
	if k := s.Index(device); k >= 0 {
		if grows := s.Growth(k).Text(); grows != "" {
			return "tensors grow " + grows
		}
	}
	return ""
}

// PaceText returns "22.9 a second", "5.70 a minute"; "" where the pace is unknown.
func (s *Steps) PaceText() string {
	per, unit := s.Pace(), " a second"
	if per <= 0 {
		return ""
	}
	if per < 1 {
		per, unit = 60*per, " a minute"
	}
	return format.Number(per) + unit
}

// Text returns "12.0 MiB a step", "3.00 to 12.0 MiB a step", "at least 3.00 MiB a step"; "" for
// none.
func (r Rate) Text() string {
	low, high := format.Bytes(r.Low), format.Bytes(r.High)
	switch {
	case r == Rate{}:
		return ""
	case r.High == 0:
		return "at least " + low + " a step"
	case low == high:
		return high + " a step"
	}
	return low + " to " + high + " a step"
}

// Text returns "24 steps of 42ms (22.9 a second), certain by optimizer.step at train.py:45", and
// what is to be known of them.
func (s *Steps) Text() string {
	text := s.Brief() + ", " + s.sure() + " by " + s.evidence()
	if s.Passes > 1 {
		text += fmt.Sprintf(", each of %d backward passes", s.Passes)
	}
	switch {
	case s.Lossy:
		text += "; some may be missing, since events were lost"
	case s.By == Optimizer && s.Sure == Likely:
		text += "; " + s.missing() + ", since tensors are sampled (--sample 0 takes all)"
	case s.By == Period:
		text += "; a step that accumulates gradients would count as several"
	}
	switch {
	case s.Paused && s.Partial:
		text += "; counted since the latest pause of tracing, within a step"
	case s.Paused:
		text += "; counted since the latest pause of tracing"
	case s.Partial:
		text += "; the first began before the attach"
	}
	if s.Open {
		text += "; the next is under way"
	}
	return text
}

// missing returns "about 13 more may be missing", or how the steps are known that the optimizer
// does not show.
func (s *Steps) missing() string {
	switch {
	case s.Unseen > 0 && s.Missing == 0 && s.regular:
		return humanize.Comma(int64(s.Unseen)) + " of them only by backward passes"
	case s.Missing > 0:
		return "about " + humanize.Comma(int64(s.Missing)) + " more may be missing"
	}
	return "some may be missing"
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
	of := "step " + humanize.Comma(int64(p.Step)) + " of " + humanize.Comma(int64(s.Count))
	switch {
	case p.Between && p.Step == 0:
		return "in " + PhaseText(p.Phase) + " before step 1"
	case p.Between:
		return "in " + PhaseText(p.Phase) + " after " + of
	case p.Open:
		of = "step " + humanize.Comma(int64(p.Step)) + ", which is under way"
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
