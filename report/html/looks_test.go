// SPDX-License-Identifier: Apache-2.0

package html

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"testing"

	"github.com/vramprof/vramprof/report"
)

// hostilePage: nothing that a traced process named runs or becomes markup.
func hostilePage(t *testing.T, b *browser) {
	p := b.open(t, written(t, hostile()), 1200, 900, "light")
	p.click("#sites tbody tr:first-child button")
	var bad int
	p.eval(`document.querySelectorAll("img, b b, i i, body script ~ script ~ script, iframe").length`, &bad)
	if title := p.text("title"); bad != 0 || title == "owned" {
		t.Errorf("%d foreign elements, title %.60q", bad, title)
	}
	if got := p.number("#flame", "total"); !near(got, float64(mib)) {
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
	var m struct{ Paint, Ready, Range, Worst, Search, Hide, Zoom, Sort, Boxes float64 }
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
		return m;
	})()`, &m)
	t.Logf("first paint after %.0f ms, all drawn after %.0f ms; a step of the range %.0f ms (at most %.0f), search %.0f, library frames %.0f, zoom %.0f, order %.0f; %.0f boxes",
		m.Paint, m.Ready, m.Range, m.Worst, m.Search, m.Hide, m.Zoom, m.Sort, m.Boxes)
	if m.Paint > 10_000 || m.Ready > 20_000 || m.Range > 1000 || m.Boxes == 0 {
		t.Errorf("slow: %+v", m)
	}
	p.screenshot("large")
	p.clean()
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
