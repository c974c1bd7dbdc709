// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// flooded is a process that used up its shares, beside one that did not.
func flooded() (*ledger.Snapshot, stackMap) {
	site := func(process int, stack, live uint64) ledger.Site {
		return ledger.Site{
			Process: process, Stack: stack, API: "cudaMalloc", LiveObjects: 1, LiveBytes: live << 20, AllocObjects: 9, AllocBytes: 9 << 20,
			History: make([]uint64, ledger.HistoryLen),
		}
	}
	s := &ledger.Snapshot{
		End: 10e9,
		Processes: []ledger.Process{
			{PID: 7, Comm: "flood", Lost: 12, Beyond: []ledger.Beyond{{Table: "sites", Count: 3}, {Table: ledger.BeyondStacks, Count: 5}}},
			{PID: 8, Comm: "honest"},
		},
		Sites:    []ledger.Site{site(0, 0, 9), site(0, 1, 8), site(1, 2, 7)},
		Failures: []ledger.Failure{{Process: 0, API: "cudaMalloc", Result: 2, Count: 4, Crowded: 4}, {Process: 1, API: "cudaMalloc", Stack: 2, Result: 2, Count: 1}},
	}
	s.Sites[0].Crowded, s.Sites[0].Evicted = 3, 2
	return s, stackMap{2: []callstack.Frame{{Function: "honest_work"}}}
}

const (
	lostMark    = "12 events of the process lost: figures can be too high or too low"
	evictedMark = "2 allocations too many to follow: in no live figure"
	crowdedMark = "several sites in one: their process has too many for a stack each (3 times)"
	stackMark   = "stack not kept: its process has too many different ones"
)

func TestRowsThatLackSomethingSaySo(t *testing.T) {
	s, st := flooded()
	for i, want := range [][]string{{lostMark, evictedMark, crowdedMark}, {lostMark, stackMark}, nil} {
		if got := Marks(s, st, &s.Sites[i]); !slices.Equal(got, want) {
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
	leaks := flat(func(b *bytes.Buffer) error { return WriteLeaks(b, s, st, Options{}, Screen{}) })
	summary := flat(func(b *bytes.Buffer) error { return WriteSummary(b, s, st, Options{}, Screen{}) })
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
	table := flat(func(b *bytes.Buffer) error { return WriteTable(b, s, st, Options{}, Screen{}) })
	if strings.Count(table, "(incomplete) ") != 1 || strings.Contains(table, "(incomplete) honest_work") {
		t.Errorf("the table:\n%s", table)
	}
}

func TestMarksTravelWithTheData(t *testing.T) {
	s, st := flooded()
	var page, packed bytes.Buffer
	if err := WriteLeaksJSON(&page, s, st, Options{}); err != nil {
		t.Fatal(err)
	}
	var r LeaksReport
	if err := json.Unmarshal(page.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if x := r.Sites[0]; len(x.Incomplete) != 3 || x.MissingCount != 2 || x.CrowdedCount != 3 || len(r.Sites[1].Incomplete) != 2 || r.Sites[2].Incomplete != nil {
		t.Errorf("sites %+v", r.Sites)
	}
	if p := r.Processes[0]; p.LostEvents != 12 || len(p.Beyond) != 2 || p.Beyond[0] != (BeyondReport{"sites", 3}) || len(r.Processes[1].Beyond) != 0 {
		t.Errorf("processes %+v", r.Processes)
	}
	if len(r.Failures[0].Incomplete) != 2 || r.Failures[1].Incomplete != nil {
		t.Errorf("failures %+v", r.Failures)
	}
	if err := WriteProfile(&packed, s, st); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&packed)
	if err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for _, x := range p.Sample {
		got = append(got, x.Label["incomplete"])
	}
	if want := [][]string{{"lost events", "missing allocations", "several sites"}, {"lost events", "missing stack"}, nil}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("labels %q, want %q", got, want)
	}
}
