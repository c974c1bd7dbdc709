// SPDX-License-Identifier: Apache-2.0

package html

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// near compares bytes, which are whole numbers in the page as long as they are below 2^53.
func near(a, b float64) bool { return math.Abs(a-b) < 1 }

// sum adds up the holdings of GPU memory, of all planes or of one.
func sum(in Input, plane string) float64 {
	n := int64(0)
	for _, h := range report.Holdings(in.Snapshot) {
		if !h.Apart() && (plane == "" || h.Plane == plane) {
			n += h.Live
		}
	}
	return float64(n)
}

// rowsAt adds up the timeline at a moment.
func rowsAt(in Input, t int) float64 {
	n := int64(0)
	for i := range in.Timeline.Rows {
		n += total(&in.Timeline.Rows[i], t)
	}
	return float64(n)
}

func TestPageInChromium(t *testing.T) {
	b := openBrowser(t)
	in := fixture()
	page := written(t, in)
	for name, test := range map[string]func(*tab, Input){
		"graph adds up to the ledger":     graphAddsUp,
		"search sums what matches":        searchSums,
		"range and moments":               rangeSelects,
		"keyboard":                        keyboard,
		"a site is selected":              siteSelects,
		"filters":                         filters,
		"library frames are hidden":       hidesLibraries,
		"names for screen readers":        named,
		"reconciliation, events and text": says,
		"views in the address":            addresses,
		"a profile is downloaded":         downloads,
	} {
		t.Run(name, func(t *testing.T) {
			p := b.open(t, page, 1400, 1000, "light")
			p.T = t
			test(p, in)
			p.clean()
		})
	}
	t.Run("hostile names", func(t *testing.T) { hostilePage(t, b) })
	t.Run("without timeline", func(t *testing.T) { plainPage(t, b) })
	t.Run("steps", func(t *testing.T) { stepsPage(t, b) })
	t.Run("ten thousand sites", func(t *testing.T) { quick(t, b) })
	t.Run("an ended session", func(t *testing.T) { endedPage(t, b) })
	t.Run("who keeps it", func(t *testing.T) { heldPage(t, b) })
	t.Run("failed walks", func(t *testing.T) { failedWalks(t, b) })
	t.Run("started commands", func(t *testing.T) { startedPage(t, b) })
	t.Run("looks", func(t *testing.T) { looks(t, b, page) })
}

// startedPage checks that nothing of processes that began within the session is called older than
// the attach, and that a small share is not written as none.
func startedPage(t *testing.T, b *browser) {
	for within, want := range map[bool]string{false: " from before the attach", true: " in CUDA contexts"} {
		in := fixture()
		s := *in.Snapshot
		s.Processes, s.Sites = slices.Clone(s.Processes), slices.Clone(s.Sites)
		for i := range s.Processes {
			if within {
				s.Processes[i].Begin = s.Begin + second
			}
		}
		small := slices.IndexFunc(s.Sites, func(x ledger.Site) bool { return x.LiveBytes == 72*mib })
		s.Sites[small].LiveBytes = 4096
		in.Snapshot, in.Timeline = &s, nil
		p := b.open(t, written(t, in), 1200, 1000, "dark")
		if sum, count := p.text("#sum"), p.text("#sites-count"); !strings.Contains(sum, want) || !strings.Contains(count, want) {
			t.Errorf("begun within the session %v: %q and %q, want %q", within, sum, count, want)
		}
		if rows := p.text("#sites tbody"); strings.Contains(rows, "0.00 %") || !strings.Contains(rows, "<0.01 %") {
			t.Errorf("a share of nothing in %q", rows)
		}
		p.clean()
	}
}

func graphAddsUp(p *tab, in Input) {
	if got, want := p.number("#flame", "total"), sum(in, ""); !near(got, want) {
		p.Errorf("the graph has %.0f bytes, the ledger %.0f", got, want)
	}
	if got, want := p.text("#sum b"), format.Bytes(uint64(sum(in, ""))); got != want {
		p.Errorf("the page says %q, want %q", got, want)
	}
	if text := p.text("#sum"); p.number("#flame", "drawn") != sum(in, "") || strings.Contains(text, "cannot be drawn") {
		p.Errorf("nothing is below 0, and %.0f bytes are drawn: %q", p.number("#flame", "drawn"), text)
	}
	usage := uint64(0)
	for i := range in.Snapshot.Balances {
		usage += in.Snapshot.Balances[i].Usage
	}
	if !near(float64(usage), sum(in, "")) {
		p.Errorf("the fixture does not add up to NVML's figure")
	}
	p.click("[data-metric=alloc]")
	want := uint64(0)
	for i := range in.Snapshot.Sites {
		if x := &in.Snapshot.Sites[i]; !x.Segment && !x.Kind.OnHost() {
			want += x.AllocBytes
		}
	}
	if got := p.number("#flame", "total"); !near(got, float64(want)) {
		p.Errorf("allocated %.0f bytes, want %d", got, want)
	}
	p.click("[data-metric=leak]")
	if got, want := p.number("#flame", "total"), float64(in.Snapshot.Sites[0].LiveBytes); !near(got, want) {
		p.Errorf("leaked %.0f bytes, want %.0f", got, want)
	}
}

func searchSums(p *tab, in Input) {
	p.press("/", "L", "o", "g", "g", "e", "r")
	if got, want := p.number("#matched", "bytes"), float64(in.Snapshot.Sites[0].LiveBytes); !near(got, want) {
		p.Errorf("search found %.0f bytes, want %.0f", got, want)
	}
	if text := p.text("#matched"); !strings.Contains(text, "15.6 %") {
		p.Errorf("search says %q", text)
	}
	if text := p.text("#sites-count"); text != "1–1 of 1" {
		p.Errorf("sites that match: %q", text)
	}
	p.click("#regex")
	p.eval(`{ const s = document.getElementById("search"); s.value = "^AdamW|Logger\\.k"; s.dispatchEvent(new Event("input")); }`, nil)
	want := in.Snapshot.Sites[0].LiveBytes + in.Snapshot.Sites[1].LiveBytes + in.Snapshot.Sites[8].LiveBytes
	if got := p.number("#matched", "bytes"); !near(got, float64(want)) {
		p.Errorf("expression found %.0f bytes, want %d", got, want)
	}
	p.eval(`{ const s = document.getElementById("search"); s.value = "("; s.dispatchEvent(new Event("input")); }`, nil)
	p.settle()
	if text := p.text("#matched"); text != "not a regular expression" {
		p.Errorf("a bad expression says %q", text)
	}
}

func rangeSelects(p *tab, in Input) {
	var width float64
	p.eval(`document.getElementById("chart").clientWidth`, &width)
	last := len(in.Timeline.Times) - 1
	share := func(t int) float64 { return (68 + float64(t)/float64(last)*(width-68-14)) / width } // where a moment is in the chart
	p.mouse("mousePressed", "#chart", share(60), 0.5)
	p.mouse("mouseReleased", "#chart", share(60), 0.5)
	if got, want := p.number("#flame", "total"), rowsAt(in, 60); !near(got, want) {
		p.Errorf("after a click: %.0f bytes, want %.0f of that moment", got, want)
	}
	p.mouse("mousePressed", "#chart", share(30), 0.5)
	p.mouse("mouseMoved", "#chart", share(80), 0.5)
	p.mouse("mouseReleased", "#chart", share(100), 0.5)
	p.mouse("mouseMoved", "#chart", share(20), 0.5) // is not held any more
	if got, want := p.number("#flame", "total"), rowsAt(in, 80)-rowsAt(in, 30); !near(got, want) {
		p.Errorf("growth of %.0f bytes, want %.0f", got, want)
	}
	if text := p.text("#range-text"); text != "growth from 30s to 1m20s" {
		p.Errorf("range says %q", text)
	}
	p.click("#at-peak")
	if got, want := p.number("#flame", "total"), rowsAt(in, 117); !near(got, want) { // as report --at peak
		p.Errorf("peak of %.0f bytes, want %.0f", got, want)
	}
	p.click("#planes [data-plane='4']")
	peak := 0.0
	for t := range in.Timeline.Times {
		before := 0.0
		for i := range in.Timeline.Rows {
			before += float64(in.Timeline.Rows[i].Before[t])
		}
		peak = max(peak, rowsAt(in, t)-before)
	}
	if got := p.number("#flame", "total"); !near(got, peak) {
		p.Errorf("without a plane, peak of %.0f bytes, want %.0f", got, peak)
	}
	p.click("#planes [data-plane='4']")
	p.click("#at-all")
	if got, want := p.number("#flame", "total"), rowsAt(in, last)-rowsAt(in, 0); !near(got, want) {
		p.Errorf("growth of all: %.0f bytes, want %.0f", got, want)
	}
	p.eval(`document.getElementById("to").focus()`, nil)
	p.press("ArrowLeft", "ArrowLeft")
	if got, want := p.number("#flame", "total"), rowsAt(in, last-2)-rowsAt(in, 0); !near(got, want) {
		p.Errorf("after two keys: %.0f bytes, want %.0f", got, want)
	}
	p.press("Home")
	if got, want := p.number("#flame", "total"), rowsAt(in, 0); !near(got, want) {
		p.Errorf("with both ends at the beginning: %.0f bytes, want %.0f", got, want)
	}
	var said string
	p.eval(`document.getElementById("to").getAttribute("aria-valuetext")`, &said)
	if said != "after 0ms" {
		p.Errorf("the handle says %q", said)
	}
}

func keyboard(p *tab, in Input) {
	var reached []string
	for range 60 {
		p.press("Tab")
		var id string
		p.eval(`document.activeElement.id || document.activeElement.tagName`, &id)
		reached = append(reached, id)
		if id == "flame" {
			break
		}
	}
	order := strings.Join(reached, " ")
	at := -1
	for _, id := range []string{"theme", "process", "gpu", "reset", "from", "to", "search", "regex", "hide", "flame"} {
		i := strings.Index(" "+order+" ", " "+id+" ")
		if i <= at {
			p.Errorf("%s is not where the tab key should bring it: %s", id, order)
		}
		at = max(i, at)
	}
	if text := p.text("#spoken"); !strings.HasPrefix(text, "all: 67.4 GiB") {
		p.Errorf("focus says %q", text)
	}
	p.press("ArrowDown", "ArrowDown", "ArrowRight")
	if text := p.text("#spoken"); !strings.HasPrefix(text, "Trainer.fit, /home/ada/llm/train.py:91: 18.0 GiB, 26.7 % of all") {
		p.Errorf("arrow keys lead to %q", text)
	}
	p.press("Enter")
	if text := p.text("#crumbs [aria-current]"); text != "Trainer.fit" {
		p.Errorf("Enter zooms into %q", text)
	}
	p.press("Backspace")
	if text := p.text("#crumbs [aria-current]"); text != "<module>" {
		p.Errorf("Backspace zooms out to %q", text)
	}
	p.press("/", "x")
	p.press("Escape")
	var query string
	p.eval(`document.getElementById("search").value + document.getElementById("crumbs").hidden`, &query)
	if query != "true" {
		p.Errorf("Escape leaves %q", query)
	}
}

func siteSelects(p *tab, in Input) {
	p.click("#sites tbody tr:nth-child(2) button")
	if text := p.text("#selected-head"); text != "Logger.keep" {
		p.Errorf("selected: %q", text)
	}
	p.screenshot("selected")
	if stack := p.text("#selected-stack"); !strings.Contains(stack, "4 library frames") || strings.Contains(stack, "at::native::mul") || !strings.Contains(stack, "Trainer.step") {
		p.Errorf("the stack is not folded: %q", stack)
	}
	p.eval(`for (let run; run = document.querySelector("#selected-stack .run button"); run.remove()) run.click()`, nil)
	p.settle()
	stack := p.text("#selected-stack")
	for i, f := range in.Stacks.Stack(6) {
		if !strings.Contains(stack, f.Function) {
			p.Errorf("frame %d, %s, is missing in %q", i, f.Function, stack)
		}
	}
	if text := p.text("#selected-verdict"); !strings.HasPrefix(text, "leaking") {
		p.Errorf("verdict: %q", text)
	}
	if text := p.text("#sites"); !strings.Contains(text, "Pool::take") || strings.Contains(text, "Pool::take(") {
		p.Errorf("the names of sites are not simple: %q", text)
	}
	if text := p.text("#spoken"); !strings.HasPrefix(text, "Selected Logger.keep") {
		p.Errorf("screen readers hear %q", text)
	}
	first := p.text("#sites tbody tr:first-child .c-bytes")
	p.click("#sites thead th:first-child button")
	p.settle()
	if again := p.text("#sites tbody tr:first-child .c-bytes"); again == first {
		p.Errorf("the order of sites stays as it was: %q first", first)
	}
	p.click("#sites thead th:nth-child(4) button")
	if text := p.text("#sites tbody tr:first-child .name"); text != "AdamW._init_group" && text != "Attention.forward" {
		p.Errorf("first by name: %q", text)
	}
}

func filters(p *tab, in Input) {
	set := func(id, value string) {
		p.eval(fmt.Sprintf(`{ const s = document.getElementById(%q); s.value = %q; s.dispatchEvent(new Event("change")); }`, id, value), nil)
	}
	set("process", "2")
	if got, want := p.number("#flame", "total"), float64(in.Snapshot.Balances[2].Usage); !near(got, want) {
		p.Errorf("one process: %.0f bytes, want %.0f", got, want)
	}
	set("process", "-1")
	set("gpu", "1")
	if got, want := p.number("#flame", "total"), float64(in.Snapshot.Balances[1].Usage+in.Snapshot.Balances[2].Usage); !near(got, want) {
		p.Errorf("one GPU: %.0f bytes, want %.0f", got, want)
	}
	set("gpu", "-1")
	if got, want := p.number("#flame", "total"), float64(640*mib); !near(got, want) {
		p.Errorf("the host: %.0f bytes, want %.0f", got, want)
	}
	p.press("Escape")
	p.click("#planes [data-plane='0']")
	if got, want := p.number("#flame", "total"), sum(in, "")-sum(in, report.PlaneTensor); !near(got, want) {
		p.Errorf("without tensors: %.0f bytes, want %.0f", got, want)
	}
}

func hidesLibraries(p *tab, in Input) {
	before := p.number("#flame", "drawn")
	p.eval(`document.getElementById("boxes").open = true`, nil)
	p.click("#hide") // they are at first
	if text := p.text("#boxes tbody"); !strings.Contains(text, "at::native::linear") || !strings.Contains(text, "Trainer.step") {
		p.Errorf("the graph as a table lacks frames: %.200q", text)
	}
	p.click("#hide")
	if got := p.number("#flame", "drawn"); !near(got, before) {
		p.Errorf("without libraries the graph has %.0f bytes, with them %.0f", got, before)
	}
	text := p.text("#boxes tbody")
	if strings.Contains(text, "at::native::linear") || strings.Contains(text, "__libc_start") || !strings.Contains(text, "Trainer.step") {
		p.Errorf("library frames are still there, or too few: %.300q", text)
	}
	if !strings.Contains(text, "AddmmBackward0") { // a stack of libraries only keeps one frame
		p.Errorf("a stack without frames of one's own is gone: %.300q", text)
	}
}

// named: everything that can be used has a name and a role.
func named(p *tab, _ Input) {
	var nameless []string
	p.eval(`[...document.querySelectorAll("button, input, select, [tabindex], table th, canvas[role]")].filter((e) => !e.closest("[hidden]") &&
		!(e.textContent.trim() || e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.labels?.length)).map((e) => e.outerHTML.slice(0, 80))`, &nameless)
	if len(nameless) > 0 {
		p.Errorf("without a name: %q", nameless)
	}
	var tree struct {
		Nodes []struct {
			Role, Name struct{ Value any }
		}
	}
	p.do("Accessibility.getFullAXTree", nil, &tree)
	seen := map[string]bool{}
	for _, n := range tree.Nodes {
		seen[fmt.Sprint(n.Role.Value, ": ", n.Name.Value)] = true
	}
	for _, want := range []string{"heading: llama-7 on gpu-box-3", "application: Who allocated it", "slider: Start of the range", "searchbox: Search functions and files",
		"button: Peak", "columnheader: Bytes", "combobox: Process", "status: "} {
		if !seen[want] {
			p.Errorf("screen readers do not find %q", want)
		}
	}
}

// sum returns the figure at the end of the reconciliation, without what is beyond it.
func (p *tab) sum() (text string) {
	p.eval(`document.querySelector("#parts tbody tr:last-child .sum").firstChild.textContent`, &text)
	return text
}

func says(p *tab, in Input) {
	if text := p.sum(); text != format.Bytes(uint64(sum(in, ""))) {
		p.Errorf("the reconciliation ends with %q", text)
	}
	p.says(map[string]string{
		"#subtitle": "3 processes on gpu-box-3, traced 2m00s until 2026-11-21 12:31:36 UTC",
		"#findings": "1 line leaks10.5 GiBLogger.keep",
		"#warnings": "libbroken.so.1 is not ELF",
		"#doubts":   "12 events were lost",
		"#remarks":  "largest free run: ",
		"#events":   "Out of memory",
	})
	p.click("#events tbody tr:last-child button")
	if got, want := p.number("#flame", "total"), rowsAt(in, 118); !near(got, want) {
		p.Errorf("at the error: %.0f bytes, want %.0f", got, want)
	}
}

// TestLinesThatGrowAreNotSilentlyNoLeaks: the page said "No line leaks" where leaks said "No line
// leaks for certain; growing: 6 lines".
func TestLinesThatGrowAreNotSilentlyNoLeaks(t *testing.T) {
	b := openBrowser(t)
	in := fixture()
	for i := range in.Verdicts {
		if in.Verdicts[i].Class == "leaking" {
			in.Verdicts[i].Class = "growing"
		}
	}
	p := b.open(t, written(t, in), 1200, 900, "light")
	if got, want := p.text("#findings-head"), "No line leaks for certain; growing: 2 lines"; got != want {
		t.Errorf("the heading is %q, want %q", got, want)
	}
}
