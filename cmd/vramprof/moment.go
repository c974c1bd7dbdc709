// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/capture"
)

// moment is a point in a session: "12m30s" after it began, its peak, or its end.
type moment struct {
	text  string
	after time.Duration
	peak  bool
	end   bool
}

func parseMoment(text string) (moment, error) {
	switch text {
	case "", "end":
		return moment{text: "end", end: true}, nil
	case "peak":
		return moment{text: text, peak: true}, nil
	case "0", "0s", "begin":
		return moment{text: "begin"}, nil
	}
	d, err := parseDuration(text)
	if err != nil {
		return moment{}, fmt.Errorf("%q is not a moment (12m30s, plain seconds, begin, peak, end)", text)
	}
	return moment{text: text, after: d}, nil
}

// parseInterval reads "A,B".
func parseInterval(text string) (from, to moment, err error) {
	a, b, ok := strings.Cut(text, ",")
	if !ok {
		return from, to, fmt.Errorf("%q is not an interval (--between 5m,12m30s)", text)
	}
	if from, err = parseMoment(a); err == nil {
		to, err = parseMoment(b)
	}
	if err == nil && (from.end || to.ordered() && (to.after == 0 || from.ordered() && from.after >= to.after)) {
		err = reversed(text, from, to)
	}
	return from, to, err
}

// ordered reports whether a moment is a time since the session began, which can be compared without
// a capture.
func (m moment) ordered() bool { return !m.peak && !m.end }

func reversed(text string, from, to moment) error {
	why := "is not after"
	if from.text == to.text {
		why = "is the same moment as"
	}
	return fmt.Errorf("--between %s: %s %s %s (the earlier moment comes first)", text, to.text, why, from.text)
}

// interval returns the times of two moments; the first must be earlier.
func interval(r *capture.Reader, between [2]moment) (from, to uint64, err error) {
	if from, err = between[0].in(r); err == nil {
		to, err = between[1].in(r)
	}
	if err == nil && from >= to {
		err = usageError{reversed(between[0].text+","+between[1].text, between[0], between[1])}
	}
	return from, to, err
}

// in returns the time of a moment in ns of the session's clock.
func (m moment) in(r *capture.Reader) (uint64, error) {
	begin, end := r.Begin(), r.End()
	switch {
	case m.end:
		return end, nil
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
		return 0, usageError{fmt.Errorf("%s is after the end of the session (it is %s long)", m.text, time.Duration(end-begin).Round(time.Millisecond))}
	}
	return at, nil
}
