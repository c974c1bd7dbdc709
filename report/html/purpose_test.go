// SPDX-License-Identifier: Apache-2.0

package html

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// explained is a page with holders of each purpose, and a chart.
func explained() Input {
	s := reporttest.Explained()
	w := timeline.NewWindow(uint64(60e9))
	for t := range 31 {
		x := *s
		x.End = s.Begin + (s.End-s.Begin)*uint64(t)/30
		w.Add(&x)
	}
	found := report.Judge(s, reporttest.HeldStacks())
	return Input{Snapshot: s, Stacks: reporttest.HeldStacks(), Timeline: w.Timeline(nil), Verdicts: found.Sites(), Balance: found.BalanceTexts(8), Advice: found.Advice}
}

// The first block of the page is what the memory is for, and leaves the chart in sight; its bars
// open tables that add up to NVML's figure.
func TestPurposesAreTheFirstBlock(t *testing.T) {
	b := openBrowser(t)
	in := explained()
	page := written(t, in)
	list := purpose.Of(in.Snapshot, in.Stacks)
	most := &list[purpose.BySize(list)[0]]
	for _, width := range []int{1200, 400} {
		p := b.open(t, page, width, 900, "light")
		p.T = t
		var first string
		var at struct{ Purposes, Chart, Bottom float64 }
		p.eval(`document.querySelector("main > section:not([hidden])").id`, &first)
		p.eval(`({ purposes: document.getElementById("purposes").getBoundingClientRect().top, chart: document.getElementById("chart").getBoundingClientRect().top,
			bottom: document.getElementById("chart").getBoundingClientRect().bottom })`, &at)
		if first != "purpose-section" || at.Purposes > at.Chart || width == 1200 && at.Bottom > 900 {
			t.Errorf("%d px: the first block is %s; it begins at %.0f, the chart is from %.0f to %.0f", width, first, at.Purposes, at.Chart, at.Bottom)
		}
		if text, want := p.text("#purposes summary"), most.Title(in.Snapshot)+format.Bytes(uint64(most.Bytes)); !strings.HasPrefix(text, want) || !strings.Contains(text, "optimizer state 28.0 GiB") {
			t.Errorf("%d px: the first bar says %q, want %q", width, text, want)
		}
		var shares []float64
		p.eval(`[...document.querySelectorAll("#purposes .stack-bar")[0].children].map((x) => parseFloat(x.style.width))`, &shares)
		sum := 0.0
		for _, x := range shares {
			sum += x
		}
		if len(shares) < 9 || sum < 99.9 || sum > 100.1 {
			t.Errorf("%d px: the parts of the bar are %v", width, shares)
		}
		p.eval(`document.querySelector("#purposes summary").focus()`, nil)
		p.press("Enter")
		rows := p.text("#purposes details table")
		for i := range most.Rows {
			r := &most.Rows[i]
			if want := r.Name() + format.SignedBytes(r.Bytes); !strings.Contains(strings.ReplaceAll(rows, "−", "-"), want) {
				t.Errorf("%d px: the table lacks %q: %q", width, want, rows)
			}
		}
		p.press("Enter")
		p.mouse("mousePressed", "#purposes .stack-bar span:nth-child(3)", 0.5, 0.5)
		p.mouse("mouseReleased", "#purposes .stack-bar span:nth-child(3)", 0.5, 0.5)
		if text := p.text("#purposes .chosen-row"); !strings.HasPrefix(text, "gradients14.0 GiB21 %by holders") && !strings.HasPrefix(text, "weights14.0 GiB") {
			t.Errorf("%d px: a click into the bar leads to %q", width, text)
		}
		p.screenshot(fmt.Sprintf("purposes-%d", width))
		p.eval(`{ const s = document.getElementById("process"); s.value = "1"; s.dispatchEvent(new Event("change")); }`, nil)
		p.settle()
		var hidden bool
		if p.eval(`document.getElementById("purpose-section").hidden`, &hidden); !hidden {
			t.Errorf("%d px: of another process: %q", width, p.text("#purposes"))
		}
		p.clean()
	}
}

// Of many processes the largest are shown; a button shows all.
func TestAFewPurposesAreShownAtFirst(t *testing.T) {
	b := openBrowser(t)
	in := rankedProcesses(40)
	p := b.open(t, written(t, in), 1200, 900, "dark")
	p.T = t
	count := func() (n int) {
		p.eval(`document.querySelectorAll("#purposes details").length`, &n)
		return n
	}
	if n := count(); n != 3 || p.text("#purposes-more") != "Show all 40" {
		t.Errorf("%d bars, %q", n, p.text("#purposes-more"))
	}
	p.click("#purposes-more")
	if n := count(); n != 40 {
		t.Errorf("%d bars of all", n)
	}
	p.clean()
}

// rankedProcesses is so many processes like the first of the fixture.
func rankedProcesses(n int) Input {
	in := fixture()
	one, s := in.Snapshot.Only(func(p *ledger.Process) bool { return p.PID == 4242 }), *in.Snapshot
	s.Processes, s.Sites, s.Tensors, s.Balances = nil, nil, nil, nil
	for k := range n {
		p := one.Processes[0]
		p.PID += uint32(k)
		s.Processes = append(s.Processes, p)
		for _, x := range one.Sites {
			x.Process = k
			s.Sites = append(s.Sites, x)
		}
		for _, x := range one.Tensors {
			x.Process = k
			s.Tensors = append(s.Tensors, x)
		}
		for _, x := range one.Balances {
			x.Process = k
			s.Balances = append(s.Balances, x)
		}
	}
	in.Snapshot, in.Timeline, in.Verdicts = &s, nil, nil
	return in
}

// Of a process that has ended, the purposes are those of its peak, which the page names; a click
// chooses that moment.
func TestPurposesOfAnEndedProcessAreOfItsPeak(t *testing.T) {
	b := openBrowser(t)
	in := ended(0, 1, 2)
	if len(in.Past) == 0 || len(purpose.Of(in.Snapshot, in.Stacks)) != 0 {
		t.Fatalf("%d balances of peaks", len(in.Past))
	}
	p := b.open(t, written(t, in), 1200, 900, "light")
	p.T = t
	p.says(map[string]string{"#purposes summary": "after 1m57s, its peak"})
	if text, want := p.text("#purposes summary b"), format.SignedBytes(in.Past[0].Bytes); text != want {
		t.Errorf("the bar is of %q, want %q", text, want)
	}
	p.click("#purposes summary .title")
	p.click("#purposes details button")
	p.says(map[string]string{"#range-text": "after 1m57s"})
	if got, want := p.number("#flame", "total"), rowsAt(in, 117); !near(got, want) {
		t.Errorf("at the peak %.0f bytes, want %.0f", got, want)
	}
	p.clean()
}
