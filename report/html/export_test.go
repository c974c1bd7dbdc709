// SPDX-License-Identifier: Apache-2.0

package html

import (
	"reflect"
	"strings"
	"testing"
)

// PayloadNames returns the names in the data of a page.
func PayloadNames() (names []string) {
	for i := range reflect.TypeFor[payload]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[payload]().Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// What tests of pages that are served share with the others.
var (
	OpenBrowser = openBrowser
	Fixture     = fixture
	Hostile     = hostile
	Large       = large
)

type (
	Browser = browser
	Tab     = tab
)

// Visit shows the page at an address of a server, in a new tab.
func (b *browser) Visit(t *testing.T, url string, width int, theme string) *tab {
	t.Helper()
	p := b.open(t, []byte("<!DOCTYPE html><html data-ready=1><title>empty</title>"), width, 1000, theme)
	p.url = url
	p.load("")
	return p
}

func (p *tab) Load(address string)                       { p.Helper(); p.load(address) }
func (p *tab) Eval(expression string, result any)        { p.Helper(); p.eval(expression, result) }
func (p *tab) Wait(expression string)                    { p.Helper(); p.wait(expression) }
func (p *tab) Click(selector string)                     { p.Helper(); p.click(selector) }
func (p *tab) Press(keys ...string)                      { p.Helper(); p.press(keys...) }
func (p *tab) Text(selector string) string               { p.Helper(); return p.text(selector) }
func (p *tab) Number(selector, name string) float64      { p.Helper(); return p.number(selector, name) }
func (p *tab) Says(texts map[string]string)              { p.Helper(); p.says(texts) }
func (p *tab) Clean()                                    { p.Helper(); p.clean() }
func (p *tab) Screenshot(name string)                    { p.Helper(); p.screenshot(name) }
func (p *tab) Mouse(kind, selector string, x, y float64) { p.Helper(); p.mouse(kind, selector, x, y) }

// Forgive forgets what went wrong so far: a server that is away.
func (p *tab) Forgive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errors = nil
}

// Front shows the tab, which others have covered.
func (p *tab) Front() { p.Helper(); p.do("Page.bringToFront", nil, nil) }
