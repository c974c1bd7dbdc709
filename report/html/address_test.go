// SPDX-License-Identifier: Apache-2.0

package html

import (
	"fmt"
	"strings"
)

// view is what the reader of a page sees.
type view struct {
	Range, Sum, Crumbs, Matched, Sites, First, Selected, Boxes string
	Process, GPU, Search                                       string
	Hide, Fold, Regex                                          bool
	Total                                                      float64
}

func (p *tab) view() view {
	p.Helper()
	p.settle()
	var v view
	p.eval(`(() => {
		const id = (name) => document.getElementById(name), text = (name) => id(name).textContent;
		return { range: text("range-text"), sum: text("sum"), crumbs: text("crumbs"), matched: text("matched"), sites: text("sites-count"),
			first: document.querySelector("#sites tbody tr")?.textContent, selected: id("selected").hidden ? "" : text("selected-head") + text("selected-facts"),
			boxes: id("flame").dataset.boxes, process: id("process").value, gpu: id("gpu").value, search: id("search").value,
			hide: id("hide").checked, fold: id("fold").checked, regex: id("regex").getAttribute("aria-pressed") === "true", total: Number(id("flame").dataset.total) };
	})()`, &v)
	return v
}

// addressed waits until the page's address has a text.
func (p *tab) addressed(text string) string {
	p.Helper()
	p.wait(fmt.Sprintf("location.hash.includes(%q)", text))
	var hash string
	p.eval("location.hash", &hash)
	return hash
}

// addresses: a view is in its address, and the page opened with that shows it.
func addresses(p *tab, in Input) {
	opened := p.view()
	p.mouse("mousePressed", "#chart", 0.4, 0.5)
	p.mouse("mouseReleased", "#chart", 0.4, 0.5)
	first := p.addressed("#at=")
	moment := p.view()
	p.eval(`{ const s = document.getElementById("process"); s.value = "0"; s.dispatchEvent(new Event("change")); }`, nil)
	p.click("#hide")
	p.click("#fold")
	p.click("#planes [data-plane='2']")
	p.eval(`{ const s = document.getElementById("search"); s.value = "linear|Logger.ke+"; s.dispatchEvent(new Event("input")); }`, nil)
	p.click("#regex")
	p.click("#sites thead th:nth-child(4) button")
	p.click("#sites tbody tr:nth-child(2) button")
	p.eval(`document.getElementById("flame").focus()`, nil)
	p.press("Home", "ArrowDown", "Enter")
	last := p.addressed("zoom=") // what was chosen last
	want := p.view()
	for _, part := range []string{"process=4242", "planes=tensor,cache,rounding,before,", "libraries=shown", "before=shown", "search=linear%7CLogger.ke%2B", "regex=true", "zoom=", "sort=head"} {
		if !strings.Contains(last, part) {
			p.Errorf("the address lacks %s: %s", part, last)
		}
	}
	if want.Selected == "" || want.Matched == "" || want.Crumbs == "all" || want == moment {
		p.Errorf("too little is chosen: %+v", want)
	}
	p.load(last)
	if got := p.view(); got != want {
		p.Errorf("opened with %s the page shows\n%+v, want\n%+v", last, got, want)
	}
	p.load(first)
	if got := p.view(); got != moment {
		p.Errorf("opened with %s the page shows\n%+v, want\n%+v", first, got, moment)
	}
	p.click("#at-all")
	p.addressed("#between=begin,end")
	growth := p.view()
	for _, step := range []struct {
		move string
		want view
	}{{"back", moment}, {"forward", growth}, {"back", moment}} {
		p.eval("new Promise((done) => { addEventListener('hashchange', done, { once: true }); history."+step.move+"(); }).then(() => 1)", nil)
		if got := p.view(); got != step.want {
			p.Errorf("%s leads to\n%+v, want\n%+v", step.move, got, step.want)
		}
	}
	p.load("#at=1m&gpu=" + "5e6f7a8b")
	if got := p.view(); got.Range != "after 1m00s" || got.GPU != "1" {
		p.Errorf("an address typed by hand shows %+v", got)
	}
	p.foreign(opened)
}

// foreign: what no page wrote into an address changes nothing.
func (p *tab) foreign(opened view) {
	p.Helper()
	for _, address := range []string{
		"#at=<img src=x onerror=alert(1)>&process=999999&gpu=__proto__", "#between=5,1&show=constructor&zoom=99999999&site=1e9&page=-1&sort=__proto__",
		"#between=1,2,3&zoom=-5&site=0x1&holder=7&view=kept&process=constructor", "#at=&process=&gpu=&planes=" + strings.Repeat("tensor,", 5) + "cache,driver,before,unexplained,host,managed,asleep",
		"#%zz=%E0%A4%A&=&&&at=%00", "#at=" + strings.Repeat("9", 100_000),
	} {
		p.eval(fmt.Sprintf("location.hash = %q", address), nil)
		if got := p.view(); got != opened {
			p.Errorf("with %.80s the page shows\n%+v, want\n%+v", address, got, opened)
		}
	}
	p.load("#search=" + strings.Repeat("%3Cimg src=x onerror=alert(1)%3E", 50) + "&regex=true")
	var bad int
	p.eval(`document.querySelectorAll("img").length`, &bad)
	if got := p.view(); bad != 0 || len(got.Search) != 200 || got.Sites != "none" {
		p.Errorf("%d foreign elements, search of %d characters, sites %q", bad, len(got.Search), got.Sites)
	}
	p.load("#regex=true&search=(a%2B)%2B$")
	if got := p.view(); got.Regex || got.Search != "(a+)+$" {
		p.Errorf("an expression that takes too long: %+v", got)
	}
}
