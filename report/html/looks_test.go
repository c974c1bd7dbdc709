// SPDX-License-Identifier: Apache-2.0

package html

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// hostilePage: nothing that a traced process named runs or becomes markup.
func hostilePage(t *testing.T, b *browser) {
	p := b.open(t, written(t, hostile()), 1200, 900, "light")
	p.click("#sites tbody tr:first-child button")
	p.click("#holders tbody tr:first-child button")
	if text := p.text("#keeper-facts"); !strings.Contains(text, "__proto__ of 7") {
		t.Errorf("the holder's facts: %.300q", text)
	}
	var bad int
	p.eval(`document.querySelectorAll("img, b b, i i, body script ~ script ~ script, iframe").length`, &bad)
	if title := p.text("title"); bad != 0 || title == "owned" {
		t.Errorf("%d foreign elements, title %.60q", bad, title)
	}
	if got := p.number("#flame", "total"); !near(got, float64(2*mib)) {
		t.Errorf("%.0f bytes", got)
	}
	var wide bool
	p.eval(`document.documentElement.scrollWidth > innerWidth`, &wide)
	if wide {
		t.Error("long names make the page wider than the window")
	}
	p.clean()
}

func plainPage(t *testing.T, b *browser) {
	in := fixture()
	in.Timeline, in.Verdicts = nil, nil
	p := b.open(t, written(t, in), 1200, 900, "light")
	if got, want := p.number("#flame", "total"), sum(in, ""); !near(got, want) {
		t.Errorf("%.0f bytes, want %.0f", got, want)
	}
	var hidden bool
	p.eval(`document.getElementById("chart-section").hidden && !document.querySelector("[data-metric=peak]")`, &hidden)
	if !hidden {
		t.Error("there is a chart of nothing")
	}
	p.click("[data-metric=leak]")
	want := 0.0
	for _, h := range report.Holdings(in.Snapshot) {
		if h.Site != nil && h.Plane != report.PlaneCache && !h.Apart() {
			want += float64(h.Live)
		}
	}
	if got := p.number("#flame", "total"); !near(got, want) {
		t.Errorf("not freed: %.0f bytes, want %.0f", got, want)
	}
	p.clean()
}

// quick measures a page of 10,000 sites. What it prints is what counts; limits are wide, as tests
// share their machine.
func quick(t *testing.T, b *browser) {
	p := b.open(t, written(t, tenThousand()), 1400, 1000, "light")
	var m struct{ Paint, Ready, Range, Worst, Search, Hide, Zoom, Sort, Boxes, Profile float64 }
	p.eval(`(async () => {
		const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
		const id = (name) => document.getElementById(name);
		const took = async (what) => { await frame(); const t = performance.now(); what(); await frame(); return performance.now() - t; };
		const key = (name, target) => target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
		const m = { paint: performance.getEntriesByName("first-contentful-paint")[0].startTime, ready: Number(document.documentElement.dataset.ready) };
		const moves = [];
		id("at-all").click();
		for (let i = 0; i < 20; i++) moves.push(await took(() => key("ArrowLeft", id("to"))));
		m.range = moves.reduce((a, b) => a + b) / moves.length;
		m.worst = Math.max(...moves);
		m.search = await took(() => { id("search").value = "kernel_1"; id("search").dispatchEvent(new Event("input")); });
		m.hide = await took(() => id("hide").click());
		m.sort = await took(() => document.querySelector("#sites thead th:nth-child(4) button").click());
		m.zoom = await took(() => { id("flame").focus(); key("ArrowDown", id("flame")); key("Enter", id("flame")); });
		m.boxes = Number(id("flame").dataset.boxes);
		m.profile = await new Promise((done) => {
			const t = performance.now();
			URL.createObjectURL = (file) => { done(performance.now() - t); return "data:,"; };
			HTMLAnchorElement.prototype.click = () => {};
			id("download").click();
		});
		return m;
	})()`, &m)
	t.Logf("first paint after %.0f ms, all drawn after %.0f ms; a step of the range %.0f ms (at most %.0f), search %.0f, library frames %.0f, zoom %.0f, order %.0f, a profile %.0f; %.0f boxes",
		m.Paint, m.Ready, m.Range, m.Worst, m.Search, m.Hide, m.Zoom, m.Sort, m.Profile, m.Boxes)
	if m.Paint > 10_000 || m.Ready > 20_000 || m.Range > 1000 || m.Boxes == 0 {
		t.Errorf("slow: %+v", m)
	}
	p.screenshot("large")
	p.clean()
}

// heldPage: who keeps memory, as of the walk.
func heldPage(t *testing.T, b *browser) {
	in := held()
	w := in.Snapshot.LatestWalk(0)
	total := float64(w.Allocators[0].Allocated + gib) // a GiB of the driver
	p := b.open(t, written(t, in), 1400, 1000, "light")
	if got := p.number("#kept-flame", "drawn"); !near(got, total) {
		t.Errorf("the graph has %.0f bytes, want %.0f", got, total)
	}
	p.says(map[string]string{
		"#kept-head":  "Who keeps it at 58s",
		"#kept-when":  "Not of the moment chosen above (1m00s): memory was walked 2.0s before it. Choose 58s",
		"#kept-notes": "No holders of infer [4300]: no Python interpreter in the process",
		"#kept-sum":   "63.8 GiB of GPU memory 4.78 GiB since the attach 58.0 GiB before the attach 1.00 GiB other CUDA Growth is since the walk at 1.0s.",
	})
	foldsOlder(p, in)
	p.heldDownload(in)
	p.click("#kept-when button")
	if text, range_ := p.text("#kept-when"), p.text("#range-text"); text != "That is the moment chosen above." || range_ != "after 58s" {
		t.Errorf("at the walk: %q, range %q", text, range_)
	}
	p.click("#at-all")
	p.says(map[string]string{"#kept-head": "Who keeps it at 58s", "#kept-when": "holders are of all memory in use at that time"})
	p.press("Escape")

	p.eval(`document.getElementById("kept-flame").focus()`, nil)
	p.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown")
	if text := p.text("#spoken"); !strings.HasPrefix(text, "weight: 28.0 GiB, 43.9 % of all, 100 % of the step above, 14.0 GiB in itself, 112 storages, 28.0 GiB from before the attach") {
		t.Errorf("arrow keys lead to %q", text)
	}
	p.press("Enter")
	if text := p.text("#kept-crumbs [aria-current]"); text != "weight" || p.text("#crumbs [aria-current]") != "all" {
		t.Errorf("Enter zooms into %q", text)
	}
	p.press("ArrowDown", "Enter") // the end of a path
	p.says(map[string]string{"#keeper-head": "model.layers.*.weight.grad", "#keeper-sites": report.MarkOlder})
	p.press("/", "h", "i", "s", "t")
	if got, want := p.number("#kept-matched", "bytes"), float64(192*8*mib+(580-20)*8*mib); !near(got, want) {
		t.Errorf("the search found %.0f bytes, want %.0f", got, want)
	}
	if text := p.text("#holders-count") + p.text("#matched"); text != "1–1 of 1" {
		t.Errorf("after a search of holders: %q", text)
	}
	p.click("#holders tbody tr:first-child button")
	p.says(map[string]string{
		"#keeper-head": historyPath, "#keeper-facts": "+4.38 GiB since 1.0s, +560 entries", "#keeper-sites": "Block.forward",
		"#holders tbody .place": "list of 752", "#holders tbody .c-grown": "+4.61 GiB/min",
	})
	address := p.addressed("holder=")
	crumbs := p.text("#kept-crumbs")
	p.load(address)
	p.says(map[string]string{"#keeper-head": historyPath, "#holders-count": "1–1 of 1", "#kept-matched": "matched", "#kept-crumbs": crumbs})
	var top float64
	p.eval(`document.getElementById("kept-section").getBoundingClientRect().top`, &top)
	if !strings.Contains(address, "view=kept") || !strings.Contains(address, "kept-search=hist") || top > 700 {
		p.Errorf("opened with %s, the holders are %.0f pixels below the top", address, top)
	}
	p.screenshot("held")
	p.click("#keeper-sites li:last-child button")
	p.says(map[string]string{"#selected-keepers": historyPath, "#selected-keepers h3": "Kept by at 58s"})
	p.press("Escape")

	p.click("#planes [data-plane='4']") // what is older
	if got := p.number("#kept-flame", "drawn"); !near(got, total-float64(58*gib)) {
		t.Errorf("without older memory: %.0f bytes, want %.0f", got, total-float64(58*gib))
	}
	p.eval(`{ const s = document.getElementById("process"); s.value = "1"; s.dispatchEvent(new Event("change")); }`, nil)
	if got := p.number("#kept-flame", "drawn"); got != 0 {
		t.Errorf("the server keeps %.0f bytes", got)
	}
	p.says(map[string]string{"#kept-head": "Who keeps it", "#kept-notes": "no Python interpreter"})
	p.clean()
	for _, width := range []int{360, 1700} {
		p := b.open(t, written(t, in), width, 900, "light")
		p.click("#holders tbody tr:first-child button")
		p.click("#sites tbody tr:first-child button")
		var wide, beside bool
		p.eval(`document.documentElement.scrollWidth > innerWidth`, &wide)
		p.eval(`document.getElementById("flame").getBoundingClientRect().right < document.getElementById("kept-flame").getBoundingClientRect().left`, &beside)
		if wide || beside != (width > 1000) {
			t.Errorf("in a window of %d pixels: wider than it %v, graphs beside each other %v", width, wide, beside)
		}
		p.screenshot(fmt.Sprintf("held-%d", width))
		p.clean()
	}
}

// foldsOlder: memory from before the attach is folded at first, and in the sum.
func foldsOlder(p *tab, in Input) {
	older := format.Bytes(uint64(sum(in, report.PlaneBefore)))
	p.says(map[string]string{"#sum": format.Bytes(uint64(sum(in, ""))) + " in use at the end, " + older + " of that from before the attach", "#sites-count": "1–7 of 7, and " + older + " from before the attach"})
	if got := p.number("#flame", "total"); !near(got, sum(in, "")) {
		p.Errorf("folded, the graph has %.0f bytes, want %.0f", got, sum(in, ""))
	}
	boxes := p.number("#flame", "boxes")
	p.mouse("mousePressed", "#flame-canvas", 0.99, 0.3) // the narrow box
	p.mouse("mouseReleased", "#flame-canvas", 0.99, 0.3)
	if text := p.text("#sites-count"); text != "1–11 of 11" || p.number("#flame", "boxes") <= boxes {
		p.Errorf("unfolded, there are sites %q and %.0f boxes, before %.0f", text, p.number("#flame", "boxes"), boxes)
	}
	p.click("#fold")
	p.says(map[string]string{"#sites-count": "1–7 of 7"})
}

// A page of failed walks shows the reason, and no graph.
func failedWalks(t *testing.T, b *browser) {
	in := held()
	s := *in.Snapshot
	s.Walks = []ledger.Walked{{Process: 0, Time: s.End, Failure: "cannot read this Python"}}
	in.Snapshot, in.Timeline = &s, nil
	p := b.open(t, written(t, in), 1200, 900, "light")
	p.says(map[string]string{"#kept-head": "Who keeps it", "#kept-notes": "No holders of python3 [4242]: cannot read this Python"})
	var hidden bool
	p.eval(`document.getElementById("kept-graph").hidden && document.getElementById("holders-section").hidden`, &hidden)
	if !hidden {
		t.Error("there is a graph of nothing")
	}
	p.clean()
}

// says tests that elements contain texts.
func (p *tab) says(texts map[string]string) {
	p.Helper()
	p.settle()
	for selector, want := range texts {
		if text := p.text(selector); !strings.Contains(text, want) {
			p.Errorf("%s lacks %q: %.300q", selector, want, text)
		}
	}
}

// looks makes the screenshots, and checks of them what can be checked: that the page is light or
// dark, and fits.
func looks(t *testing.T, b *browser, page []byte) {
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int{1400, 500} {
			p := b.open(t, page, width, 1000, theme)
			var wide bool
			p.eval(`document.documentElement.scrollWidth > innerWidth`, &wide)
			if wide {
				t.Errorf("wider than a window of %d pixels", width)
			}
			shot, err := png.Decode(bytes.NewReader(p.screenshot(fmt.Sprintf("%s-%d", theme, width))))
			if err != nil {
				t.Fatal(err)
			}
			if dark := brightness(shot) < 0.5; dark != (theme == "dark") {
				t.Errorf("brightness of the %s page: %.2f", theme, brightness(shot))
			}
			if theme == "light" && width > 1000 {
				p.do("Emulation.setEmulatedMedia", object{"media": "print"}, nil)
				p.do("Emulation.setDeviceMetricsOverride", object{"width": 760, "height": 1000, "deviceScaleFactor": 1, "mobile": false}, nil)
				p.settle()
				p.screenshot("print")
				p.eval(`document.documentElement.scrollWidth > innerWidth`, &wide)
				if wide {
					t.Error("wider than a sheet of paper")
				}
				p.do("Emulation.setEmulatedMedia", object{"media": ""}, nil)
			}
			p.click("#theme") // dark, whatever the system says
			p.click("#theme") // light
			if shot, err = png.Decode(bytes.NewReader(p.screenshot("switched"))); err != nil || brightness(shot) < 0.5 {
				t.Errorf("the switch leaves the page dark: %v", err)
			}
			p.clean()
		}
	}
}

func brightness(shot image.Image) float64 {
	sum, n := 0.0, 0.0
	box := shot.Bounds()
	for y := box.Min.Y; y < box.Max.Y; y += 7 {
		for x := box.Min.X; x < box.Max.X; x += 7 {
			r, g, b, _ := shot.At(x, y).RGBA()
			sum += float64(r+g+b) / 3 / 0xffff
			n++
		}
	}
	return sum / n
}
