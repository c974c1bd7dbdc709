// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vramprof/vramprof/internal/duration"
	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Moment is a point in a session: "12m30s" after it began, a time of day, its peak, or its end.
type Moment struct {
	text  string
	after time.Duration
	peak  bool
	step  uint64 // of a training, from 1 on: when it held most
	end   bool
	wall  *wallTime
	found *uint64 // ns of the capture's clock: where an archive has it; see Found and Options.Open
}

// Peak is the moment at which a session held most.
func Peak() Moment { return Moment{text: "peak", peak: true} }

// Found is a moment that was found in an archive, as a time of day.
func Found(m archive.Moment) Moment { return Moment{text: WallOf(m), found: &m.Time} }

// String returns the moment as it was named.
func (m Moment) String() string { return m.text }

// IsPeak reports whether it is the peak of a session.
func (m Moment) IsPeak() bool { return m.peak }

// ParseMoment reads a moment as users name it.
func ParseMoment(text string) (Moment, error) {
	switch text {
	case "", "end":
		return Moment{text: "end", end: true}, nil
	case "peak":
		return Peak(), nil
	case "0", "0s", "begin":
		return Moment{text: "begin"}, nil
	}
	if number, ok := strings.CutPrefix(text, "step:"); ok {
		if n, err := strconv.ParseUint(number, 10, 64); err == nil && n > 0 {
			return Moment{text: text, step: n}, nil
		}
		return Moment{}, fmt.Errorf("%q is not a step (step:1 is the first)", text)
	}
	d, err := duration.Parse(text)
	if err != nil {
		if w, ok := parseWallTime(text, time.Now()); ok {
			return Moment{text: text, wall: &w}, nil
		}
		return Moment{}, fmt.Errorf("%q is not a moment (12m30s, plain seconds, begin, peak, end, step:41, 03:12, -2h, '2026-11-22 03:12')", text)
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		text += "s"
	}
	return Moment{text: text, after: d}, nil
}

// ParseInterval reads "A,B" or "A..B".
func ParseInterval(text string) (from, to Moment, err error) {
	a, b, ok := strings.Cut(text, ",")
	if !ok {
		a, b, ok = strings.Cut(text, "..")
	}
	if !ok {
		return from, to, fmt.Errorf("%q is not an interval (--between 5m,12m30s)", text)
	}
	if from, err = ParseMoment(a); err == nil {
		to, err = ParseMoment(b)
	}
	if err == nil && (from.end || to.ordered() && (to.after == 0 || from.ordered() && from.after >= to.after)) {
		err = Reversed(text, from, to)
	}
	return from, to, err
}

// ordered reports whether a moment is a time since the session began, which can be compared without
// a capture.
func (m Moment) ordered() bool { return !m.peak && !m.end && m.wall == nil && m.step == 0 }

// Reversed returns the error of an interval that ends before it begins.
func Reversed(text string, from, to Moment) error {
	why := "is not after"
	if from.text == to.text {
		why = "is the same moment as"
	}
	return fmt.Errorf("--between %s: %s %s %s (the earlier moment comes first)", text, to.text, why, from.text)
}

// Interval returns the times of two moments; the first must be earlier.
func Interval(r *capture.Reader, between [2]Moment) (from, to uint64, err error) {
	if from, err = between[0].In(r); err == nil {
		to, err = between[1].In(r)
	}
	if err == nil && from >= to {
		err = fault.Usage(Reversed(between[0].text+","+between[1].text, between[0], between[1]))
	}
	return from, to, err
}

// In returns the time of a moment in ns of the session's clock.
func (m Moment) In(r *capture.Reader) (uint64, error) {
	begin, end := r.Begin(), r.End()
	switch {
	case m.found != nil:
		return *m.found, nil
	case m.end:
		return end, nil
	case m.wall != nil:
		return m.ofDay(r)
	case m.step > 0:
		return stepTime(r, m.step)
	case m.peak:
		last, err := r.Snapshot(end)
		if err != nil {
			return 0, err
		}
		at, ok := report.PeakTime(last)
		if !ok {
			return 0, errors.New("the session has no peak: no process held GPU memory")
		}
		return at, nil
	}
	at := begin + uint64(m.after)
	if at > end {
		return 0, fault.Usage(fmt.Errorf("%s is after the end of the session (it is %s long)", m.text, time.Duration(end-begin).Round(time.Millisecond)))
	}
	if at < r.Opened() {
		if m.after == 0 {
			return r.Opened(), nil
		}
		return 0, fault.Usage(fmt.Errorf("%s is before the capture: it has the session from %s on", m.text, time.Duration(r.Opened()-begin).Round(time.Millisecond)))
	}
	return at, nil
}

// ofDay returns a time of day in ns of the session's clock.
func (m Moment) ofDay(r *capture.Reader) (uint64, error) {
	begin, end := max(r.Begin(), r.Opened()), r.End()
	from, to := r.Wall(begin), r.Wall(end)
	at := m.wall.in(to)
	if at.Before(from.Truncate(time.Second)) || at.After(to.Add(time.Second)) {
		return 0, fault.Usage(fmt.Errorf("%s is not in the capture: it begins at %s and ends at %s", showTime(at), showTime(from), showTime(to)))
	}
	return min(begin+uint64(max(at.Sub(from), 0)), end), nil
}

// showTime formats a time of day with its zone.
func showTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

// WallOf returns the time of day of a moment for people, as precise as it was asked for.
func WallOf(m archive.Moment) string { return showTime(m.Wall.Round(time.Second)) }

// SnapshotAt replays the session up to a moment.
func SnapshotAt(r *capture.Reader, m Moment) (*ledger.Snapshot, error) {
	at, err := m.In(r)
	if err != nil {
		return nil, err
	}
	return r.Snapshot(at)
}
