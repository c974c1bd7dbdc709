// SPDX-License-Identifier: Apache-2.0

package html

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/vramprof/vramprof/internal/sums"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/timeline"
)

func written(t testing.TB, in Input) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, in); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDataOfAPageIsGolden(t *testing.T) {
	for name, in := range map[string]Input{"fixture": fixture(), "held": heldAtTheEnd()} {
		sums.Check(t, in.Snapshot)
		got, err := json.MarshalIndent(newPayload(&in), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		got = append(regexp.MustCompile(`,\n\s+(-?\d)`).ReplaceAll(got, []byte(", $1")), '\n')
		reporttest.Golden(t, name+".json", got)
	}
}

func TestSameInputGivesSameBytes(t *testing.T) {
	first := written(t, fixture())
	for range 5 {
		if !bytes.Equal(first, written(t, fixture())) {
			t.Fatal("two pages of one input differ")
		}
	}
}

// At each moment, entries add up to what the rows of the timeline have; at the end to what the
// ledger has.
func TestEntriesAddUp(t *testing.T) {
	for name, in := range map[string]Input{"fixture": fixture(), "large": large(300, 10)} {
		p := newPayload(&in)
		at := 0
		for k, step := range p.Chart.Grid {
			at += step
			want := int64(0)
			for i := range in.Timeline.Rows {
				want += total(&in.Timeline.Rows[i], at)
			}
			got := int64(0)
			for e, gpu := range p.Entries.GPU {
				if gpu != host && !slices.Contains(p.Apart, p.Planes[p.Entries.Plane[e]]) {
					got += levelAt(p.Entries.Series[e], k)
				}
			}
			if got != want {
				t.Fatalf("%s: %d bytes at moment %d, want %d", name, got, k, want)
			}
		}
		want, got := int64(0), int64(0)
		for _, h := range report.Holdings(in.Snapshot) {
			want += h.Live
		}
		for _, live := range p.Entries.Live {
			got += live
		}
		if got != want || got == 0 {
			t.Errorf("%s: %d bytes at the end, want %d", name, got, want)
		}
	}
}

func levelAt(series []int64, k int) int64 {
	at, level := int64(0), int64(0)
	for i := 0; i < len(series); i += 2 {
		if at += series[i]; at > int64(k) {
			break
		}
		level += series[i+1]
	}
	return level
}

func TestPartsAddUpToUsage(t *testing.T) {
	in := fixture()
	p := newPayload(&in)
	for _, row := range p.Parts.Rows {
		sum := uint64(0)
		for _, n := range row.Lines {
			sum += n
		}
		if sum != row.Usage || len(row.Lines) != len(p.Parts.Names) {
			t.Errorf("parts of process %d: %d, NVML says %d", row.Process, sum, row.Usage)
		}
	}
}

// The fixture's second process is beyond NVML's figure: the payload has it at the end and over
// time, apart from planes that are never below 0, and the script has its name.
func TestThePageHasWhatIsBeyondNVMLsFigure(t *testing.T) {
	in := fixture()
	p := newPayload(&in)
	parts := in.Snapshot.Parts()
	var some bool
	for i, row := range p.Parts.Rows {
		some = some || row.Beyond > 0
		if row.Beyond != parts[i].Beyond() {
			t.Errorf("row %d has %d bytes, want %d", i, row.Beyond, parts[i].Beyond())
		}
	}
	for i, r := range p.Chart.Rows {
		for _, plane := range r.Planes {
			level := int64(0)
			for _, n := range plane {
				if level += n; level < 0 {
					t.Errorf("row %d has %d bytes", i, level)
				}
			}
		}
		some = some && (len(r.Beyond) > 0) == (p.Parts.Rows[i].Beyond > 0)
	}
	if script, err := os.ReadFile("js/data.js"); err != nil || !some || !strings.Contains(string(script), `"`+report.BeyondNVML+`"`) {
		t.Errorf("nothing is beyond NVML's figure, or the script has another name for it: %v", err)
	}
}

// The moments that people look for are kept, however many are left out.
func TestPeakAndErrorsAreKeptWhenMomentsAreLeftOut(t *testing.T) {
	in := large(6000, 5)
	in.Timeline.Rows[0].Before[333] = 1 << 50
	p := newPayload(&in)
	var kept []int
	at := 0
	for _, step := range p.Chart.Grid {
		at += step
		kept = append(kept, at)
	}
	if len(kept) >= len(in.Timeline.Times) || len(kept) < 20 {
		t.Errorf("%d of %d moments are kept", len(kept), len(in.Timeline.Times))
	}
	found := false
	for _, at := range kept {
		found = found || at == 333
	}
	if !found || kept[0] != 0 || kept[len(kept)-1] != len(in.Timeline.Times)-1 {
		t.Errorf("the beginning, the end or the peak is not kept: %v", kept)
	}
}

func TestPageWithoutTimelineOrSites(t *testing.T) {
	in := fixture()
	in.Timeline, in.Verdicts = nil, nil
	p := newPayload(&in)
	if p.Chart != nil || p.Verdicts || len(p.Entries.Node) == 0 {
		t.Errorf("chart %v, verdicts %v, %d entries", p.Chart, p.Verdicts, len(p.Entries.Node))
	}
	in.Snapshot.Sites, in.Snapshot.Tensors, in.Snapshot.Balances = nil, nil, nil
	page := string(written(t, in))
	if strings.Contains(page, ":null,\"head\"") {
		t.Error("columns without entries are null")
	}
	if err := Write(&bytes.Buffer{}, Input{}); err == nil {
		t.Error("a page of nothing was written")
	}
	for name, damage := range map[string]func(*timeline.Timeline){
		"short row":     func(tl *timeline.Timeline) { tl.Rows[1].Host = tl.Rows[1].Host[1:] },
		"short managed": func(tl *timeline.Timeline) { tl.Rows[1].Managed = []uint64{1} },
		"short site":    func(tl *timeline.Timeline) { tl.Sites[0].Live = nil },
		"no process":    func(tl *timeline.Timeline) { tl.Marks[0].Process = 7 },
	} {
		in := fixture()
		damage(in.Timeline)
		if err := Write(&bytes.Buffer{}, in); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// What a traced process chose is in the data alone, where it cannot end it, and is clean.
func TestHostileNamesStayData(t *testing.T) {
	page := string(written(t, hostile()))
	before, rest, _ := strings.Cut(page, `<script id="data" type="application/json">`)
	data, after, found := strings.Cut(rest, "</script>")
	if !found {
		t.Fatal("no data")
	}
	if strings.ContainsAny(data, "<>&\u2028") {
		t.Error("data has characters of markup")
	}
	for _, part := range []string{before, after} {
		for _, word := range []string{"owned", "很", "evil", "onerror"} {
			if strings.Contains(part, word) {
				t.Errorf("%q is outside of the data", word)
			}
		}
	}
	var p payload
	if err := json.Unmarshal([]byte(data), &p); err != nil {
		t.Fatal(err)
	}
	if p.Kept == nil || len(p.Kept.Keepers.Bytes) != 2 || len(p.Kept.Links.Entry) == 0 {
		t.Fatalf("no holders: %+v", p.Kept)
	}
	for _, list := range [][]string{p.Strings, p.Warnings, p.Kept.Walks[0].Notes, {p.Kept.Walks[1].Failure}, p.Remarks, {p.Title, p.Host, p.Processes[0].Name, p.Processes[0].About, p.GPUs[0].Model, p.GPUs[0].Short}} {
		for _, s := range list {
			if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == '\u202e' || r == '\u2028' }) {
				t.Errorf("not clean: %.60q", s)
			}
		}
	}
	if len(page) > 200<<10 {
		t.Errorf("long names make a page of %d bytes", len(page))
	}
}

// The page's policy names exactly the script and style that it has.
func TestPolicyAllowsOwnScriptOnly(t *testing.T) {
	page := string(written(t, fixture()))
	_, rest, _ := strings.Cut(page, "<script>")
	script, _, _ := strings.Cut(rest, "</script>")
	_, rest, _ = strings.Cut(page, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	for _, want := range []string{"default-src 'none'", "script-src '" + digest(script) + "'", "style-src '" + digest(style) + "'"} {
		if !strings.Contains(page, want) {
			t.Errorf("policy lacks %s", want)
		}
	}
	for _, word := range []string{"http://", "https://", "@import", "url(", "innerHTML", "insertAdjacentHTML", "document.write", "eval("} {
		if strings.Contains(strings.ReplaceAll(page, "http://www.w3.org/2000/svg", ""), word) {
			t.Errorf("page has %q", word)
		}
	}
}

func TestTenThousandSitesTakeFiveMegabytes(t *testing.T) {
	in := tenThousand()
	before := time.Now()
	page := written(t, in)
	t.Logf("10,000 sites with 40 frames: %.2f MB, written in %v", float64(len(page))/1e6, time.Since(before).Round(time.Millisecond))
	if len(page) > 5_000_000 {
		t.Errorf("page of %d bytes", len(page))
	}
}
