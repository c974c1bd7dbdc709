// SPDX-License-Identifier: Apache-2.0

package source

import (
	"strings"
	"time"

	"github.com/vramprof/vramprof/internal/duration"
)

// wallTime is a moment named by the time of day: "2026-11-22 03:12", "03:12", "yesterday 03:12", or
// "-2h" before the end.
type wallTime struct {
	at    time.Time     // with a date
	clock bool          // only hours, minutes and seconds of at count: the latest such time
	back  time.Duration // before the end
}

// zones are the endings that name a time zone; without one, it is the local one.
var zones = []string{"", "Z07:00", " Z07:00", "-0700", " -0700"}

// parseWallTime reads a time of day, and reports whether the text is one.
func parseWallTime(text string, now time.Time) (w wallTime, ok bool) {
	text = strings.TrimSpace(text)
	if text == "now" {
		return wallTime{}, true
	}
	if rest, minus := strings.CutPrefix(text, "-"); minus {
		d, err := duration.Parse(rest)
		return wallTime{back: d}, err == nil && rest != ""
	}
	if rest, utc := strings.CutSuffix(text, " UTC"); utc {
		text = rest + "Z"
	}
	for i, word := range []string{"today ", "yesterday "} {
		rest, is := strings.CutPrefix(text, word)
		if !is {
			continue
		}
		t, ok := parseClock(rest, []string{"15:04:05", "15:04"})
		y, m, d := now.In(t.Location()).Date()
		return wallTime{at: time.Date(y, m, d-i, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), t.Location())}, ok
	}
	if t, ok := parseClock(text, []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04"}); ok {
		return wallTime{at: t}, true
	}
	t, ok := parseClock(text, []string{"15:04:05", "15:04"})
	return wallTime{at: t, clock: true}, ok
}

func parseClock(text string, layouts []string) (time.Time, bool) {
	for _, layout := range layouts {
		for _, zone := range zones {
			if t, err := time.ParseInLocation(layout+zone, text, time.Local); err == nil {
				return t, true
			}
		}
	}
	return time.Time{}, false
}

// in returns the time of day in a history that ends at end.
func (w wallTime) in(end time.Time) time.Time {
	if w.at.IsZero() && !w.clock {
		return end.Add(-w.back)
	}
	if !w.clock {
		return w.at
	}
	y, m, d := end.In(w.at.Location()).Date()
	t := time.Date(y, m, d, w.at.Hour(), w.at.Minute(), w.at.Second(), w.at.Nanosecond(), w.at.Location())
	if t.After(end) {
		t = time.Date(y, m, d-1, w.at.Hour(), w.at.Minute(), w.at.Second(), w.at.Nanosecond(), w.at.Location())
	}
	return t
}
