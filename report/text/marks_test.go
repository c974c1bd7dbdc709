// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

const (
	lostMark    = "12 events of the process lost: figures can be too high or too low"
	evictedMark = "2 allocations too many to follow: in no live figure"
	crowdedMark = "several sites in one: their process has too many for a stack each (3 times)"
	stackMark   = "stack not kept: its process has too many different ones"
)

func TestRowsThatLackSomethingSaySo(t *testing.T) {
	s, st := reporttest.Flooded()
	for i, want := range [][]string{{lostMark, evictedMark, crowdedMark}, {lostMark, stackMark}, nil} {
		if got := report.Marks(s, st, &s.Sites[i]); !slices.Equal(got, want) {
			t.Errorf("site %d: %q, want %q", i, got, want)
		}
	}
	flat := func(write func(*bytes.Buffer) error) string {
		t.Helper()
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(b.String()), " ")
	}
	leaks := flat(func(b *bytes.Buffer) error { return WriteLeaks(b, s, st, report.Options{}, Screen{}) })
	summary := flat(func(b *bytes.Buffer) error { return WriteSummary(b, s, st, report.Options{}, Screen{}) })
	for name, text := range map[string]string{"leaks": leaks, "summary": summary} {
		for _, want := range []string{
			"incomplete: " + strings.Join([]string{lostMark, evictedMark, crowdedMark}, "; "), "incomplete: " + lostMark + "; " + stackMark,
			"flood [7] is incomplete: 12 events lost, 3 requests beyond its share of sites, 5 requests beyond its share of stacks",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", name, want, text)
			}
		}
		want := 3 // two rows and the footnote
		if name == "leaks" {
			want = 4 // and a failed allocation
		}
		if n := strings.Count(text, "incomplete: "); n != want {
			t.Errorf("%s marks %d times, want %d:\n%s", name, n, want, text)
		}
	}
	table := flat(func(b *bytes.Buffer) error { return WriteTable(b, s, st, report.Options{}, Screen{}) })
	if strings.Count(table, "(incomplete) ") != 1 || strings.Contains(table, "(incomplete) honest_work") {
		t.Errorf("the table:\n%s", table)
	}
}
