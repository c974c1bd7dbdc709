// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	reportprofile "github.com/vramprof/vramprof/report/profile"
	reporttext "github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/stacks"
)

// TestAWallClockThatJumpsChangesNothingButTheDate lets the clock be set between the begin and the
// end of a run, as far as it can be.
func TestAWallClockThatJumpsChangesNothingButTheDate(t *testing.T) {
	const second = uint64(1e9)
	outputs := func(wall time.Time) (texts [3]string) {
		l := ledger.New(ledger.Options{Begin: 100 * second, Host: "vm"})
		l.Tell(ledger.Process{PID: 7, Comm: "p", Begin: 100 * second})
		for i := range uint64(50) {
			l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Time: (100 + i) * second, Address: i + 1, Size: 1000, Stack: 1})
		}
		s := l.Snapshot(160*second, wall)
		frames := stacks.New(stacks.Max, symbolize.Options{})
		defer frames.Close()
		var text, page, heap bytes.Buffer
		for _, err := range []error{
			reporttext.WriteSummary(&text, s, frames, report.Options{}, reporttext.Screen{Width: 80}),
			json.WriteLeaks(&page, s, frames, report.Options{Top: 10}),
			reportprofile.Write(&heap, s, frames),
		} {
			if err != nil {
				t.Fatalf("%v: %v", wall, err)
			}
		}
		p, err := profile.Parse(&heap)
		if err != nil {
			t.Fatal(err)
		}
		p.TimeNanos = 0
		date := regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(Z| UTC)`)
		for i, x := range []string{text.String(), page.String(), p.String()} {
			texts[i] = date.ReplaceAllString(x, "DATE")
		}
		return texts
	}
	want := outputs(time.Unix(1_800_000_000, 0))
	if !strings.Contains(want[0], "traced 1m00s until DATE") {
		t.Errorf("the summary is\n%s", want[0])
	}
	for _, wall := range []int64{1, 1_700_000_000, 9_000_000_000} {
		if got := outputs(time.Unix(wall, 0)); got != want {
			t.Errorf("at %d:\n%s\nwant\n%s", wall, got, want)
		}
	}
}

// TestTheWallClockIsReadForDatesOnly looks for other readings in the sources of what keeps and
// shows the books.
func TestTheWallClockIsReadForDatesOnly(t *testing.T) {
	dates := map[string]bool{"snapshot.go": true, "writer.go": true} // when a snapshot was taken, when a capture began
	forbidden := regexp.MustCompile(`CLOCK_REALTIME|Gettimeofday|time\.Now\(\)\.(Unix|Format|UTC|Round)`)
	waits := map[string]bool{".": true, "sequence": true, "oom": true, "processes": true, "stacks": true, "torchalloc": true, "unwind": true, "gpuusage": true}
	for _, folder := range []string{
		".", "ledger", "capture", "../report", "../report/html", "../report/timeline", "../report/verdict", "../report/export",
		"sequence", "clock", "oom", "processes", "procfs", "shares", "stacks", "torchalloc", "unwind", "gpuusage",
	} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(folder, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			if at := forbidden.Find(text); at != nil && !dates[filepath.Base(file)] {
				t.Errorf("%s has %s", file, at)
			}
			// Elsewhere Go's times are for waiting: they carry CLOCK_MONOTONIC.
			if !waits[folder] && !dates[filepath.Base(file)] && regexp.MustCompile(`\n[^/\n]*time\.Now\(\)`).Match(text) {
				t.Errorf("%s asks for the time", file)
			}
		}
	}
}
