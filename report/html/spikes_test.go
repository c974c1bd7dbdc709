// SPDX-License-Identifier: Apache-2.0

package html_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/html"
	captures "github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/capture"
)

// TestSpikesAreOnTheLivePage: on the page of a real vramprof serve, each interval of the chart has
// the highest value, which held for 20 ms, and the parts of NVML's figure are those of the chosen
// moment. Both are compared with the ledger's own figures, from the archive. It takes half a minute
// and needs root: scripts/test-page.sh runs it.
func TestSpikesAreOnTheLivePage(t *testing.T) {
	vramprof := os.Getenv("VRAMPROF_SERVE_PAGE")
	if vramprof == "" {
		t.Skip("VRAMPROF_SERVE_PAGE names no vramprof: see scripts/test-page.sh")
	}
	x := &daemon{T: t, program: vramprof, name: "spikes.py", archive: t.TempDir(), address: freeAddress(t)}
	x.start()
	program := x.run("spikes.py")
	b := html.OpenBrowser(t)
	p := b.Visit(t, "http://"+x.address+"/", 1200, "light")
	p.Wait(`document.getElementById("to")?.getAttribute("aria-valuemax") >= 6`)
	p.Click("#pause")
	seen := momentsOf(t, p)
	p.Screenshot("serve-spikes")
	p.Clean()
	x.stop() // the archive is complete
	program.Process.Kill()
	compareWithBooks(t, filepath.Join(x.archive, "captures"), seen)
}

// shownMoment is what a page shows at a moment that was chosen in its chart.
type shownMoment struct {
	time               uint64 // ns since the session began
	driver, usage, sum string
}

// momentsOf goes through the moments of the chart by keyboard, but not to the last, whose interval
// is not over.
func momentsOf(t *testing.T, p *html.Tab) (list []shownMoment) {
	t.Helper()
	var times []uint64
	p.Eval(`fetch("data").then((x) => x.json()).then((x) => { let at = 0; return x.chart.times.map((d) => (at += d)); })`, &times)
	p.Eval(`document.getElementById("to").focus()`, nil)
	p.Press("Home")
	for i := 0; ; i++ {
		var now, last int
		p.Eval(`Number(document.getElementById("to").getAttribute("aria-valuenow"))`, &now)
		p.Eval(`Number(document.getElementById("to").getAttribute("aria-valuemax"))`, &last)
		if now >= last {
			return list
		}
		var cells struct{ Driver, Usage string }
		p.Eval(`(() => {
			const names = [...document.querySelectorAll("#parts thead th")].map((x) => x.textContent), row = document.querySelector("#parts tbody tr");
			return { driver: row?.children[names.indexOf("other CUDA")]?.textContent || "", usage: row?.querySelector(".sum").textContent || "" };
		})()`, &cells)
		list = append(list, shownMoment{times[now], cells.Driver, cells.Usage, p.Text("#sum b")})
		p.Press("ArrowRight")
	}
}

// compareWithBooks compares moments with the books that a capture has of them. The program holds
// ever more, so the highest since the moment before is the highest so far.
func compareWithBooks(t *testing.T, folder string, seen []shownMoment) {
	t.Helper()
	a, err := captures.Open(folder)
	if err != nil || len(a.Captures()) != 1 {
		t.Fatalf("%v: %d captures", err, len(a.Captures()))
	}
	r, err := capture.Open(a.Captures()[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spikes, shown := 0, []string{}
	for i, m := range seen {
		s, err := r.Snapshot(r.Begin() + m.time)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Processes) == 0 || s.Processes[0].PeakBytes == 0 {
			continue
		}
		peak, before := s.Processes[0].PeakBytes, uint64(0)
		if i > 0 {
			earlier, err := r.Snapshot(r.Begin() + seen[i-1].time)
			if err != nil {
				t.Fatal(err)
			}
			if len(earlier.Processes) > 0 {
				before = earlier.Processes[0].PeakBytes
			}
		}
		if before == peak {
			continue // no spike in between
		}
		spikes++
		shown = append(shown, m.driver)
		if m.driver != format.Bytes(peak) || m.usage != m.sum {
			t.Errorf("moment %d, %d ms after the begin: %q of other CUDA, NVML %q, in sum %q; the books have %s", i, m.time/1e6, m.driver, m.usage, m.sum, format.Bytes(peak))
		}
	}
	if spikes < 3 || len(slices.Compact(shown)) < 3 {
		t.Errorf("%d spikes in %d moments: %s", spikes, len(seen), strings.Join(shown, ", "))
	}
	t.Logf("%d moments, of them with a spike: %s", len(seen), strings.Join(shown, ", "))
}
