// SPDX-License-Identifier: Apache-2.0

package source

import (
	"testing"
	"time"
)

func TestTimesOfDay(t *testing.T) {
	local := time.Local
	time.Local = time.FixedZone("CET", 3600)
	defer func() { time.Local = local }()
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	end := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"2026-11-22 03:12":          "2026-11-22T02:12:00Z",
		"2026-11-22 03:12:05 UTC":   "2026-11-22T03:12:05Z",
		"2026-11-22T03:12:05.5Z":    "2026-11-22T03:12:05.5Z",
		"2026-11-22 03:12 -0500":    "2026-11-22T08:12:00Z",
		"2026-11-22T03:12:05+02:00": "2026-11-22T01:12:05Z",
		"03:12":                     "2026-11-22T02:12:00Z",
		"23:12":                     "2026-11-21T22:12:00Z",
		"02:59Z":                    "2026-11-22T02:59:00Z",
		"yesterday 03:12":           "2026-11-21T02:12:00Z",
		"today 01:00":               "2026-11-22T00:00:00Z",
		"-90m":                      "2026-11-22T01:30:00Z",
		"now":                       "2026-11-22T03:00:00Z",
	} {
		w, ok := parseWallTime(text, now)
		if got := w.in(end).UTC().Format(time.RFC3339Nano); !ok || got != want {
			t.Errorf("%q: %s, %t, want %s", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "-", "--5m", "-0s", "25:00", "yesterday", "2026-13-01 00:00", "22/11/2026", "12m30s", "03:12 CEST"} {
		if w, ok := parseWallTime(text, now); ok {
			t.Errorf("%q: %+v", text, w)
		}
	}
}
