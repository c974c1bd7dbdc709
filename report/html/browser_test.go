// SPDX-License-Identifier: Apache-2.0

package html

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// browser is a headless Chromium that is told what to do in the DevTools protocol, over a pair of
// pipes.
type browser struct {
	out     *os.File
	mu      sync.Mutex
	next    int
	answers map[int]chan message
	events  map[string]func(message) // by session
}

type message struct {
	ID        int             `json:"id,omitempty"`
	Session   string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Exception json.RawMessage `json:"error,omitempty"`
}

// openBrowser skips the test where there is no Chromium.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	name := ""
	for _, candidate := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(candidate); err == nil {
			name = found
			break
		}
	}
	if name == "" {
		t.Skip("no chromium: scripts/install.sh test installs it")
	}
	commands, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, answers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--headless", "--remote-debugging-pipe", "--user-data-dir=" + t.TempDir(), "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-gpu", "--force-color-profile=srgb", "--hide-scrollbars", "about:blank"}
	if os.Getuid() == 0 {
		args = append(args, "--no-sandbox") // Chromium's refuses root
	}
	cmd := exec.Command(name, args...)
	cmd.ExtraFiles = []*os.File{commands, answers} // file descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	commands.Close()
	answers.Close()
	b := &browser{out: out, answers: map[int]chan message{}, events: map[string]func(message){}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.read(in)
	}()
	t.Cleanup(func() {
		b.send("", "Browser.close", nil)
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			cmd.Process.Kill()
		}
		out.Close()
		cmd.Wait()
		in.Close()
	})
	return b
}

// read takes messages, each of which ends with a zero byte.
func (b *browser) read(in *os.File) {
	r := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := r.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			for _, c := range b.answers {
				close(c)
			}
			b.answers = nil
			b.mu.Unlock()
			return
		}
		var m message
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		answer, event := b.answers[m.ID], b.events[m.Session]
		delete(b.answers, m.ID)
		b.mu.Unlock()
		switch {
		case answer != nil:
			answer <- m
		case event != nil:
			event(m)
		}
	}
}

// send returns where the answer will come.
func (b *browser) send(session, method string, params any) chan message {
	raw, _ := json.Marshal(params)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	text, _ := json.Marshal(message{ID: b.next, Session: session, Method: method, Params: raw})
	c := make(chan message, 1)
	if b.answers == nil {
		close(c)
		return c
	}
	b.answers[b.next] = c
	b.out.Write(append(text, 0))
	return c
}

func (b *browser) call(t *testing.T, session, method string, params any, result any) {
	t.Helper()
	select {
	case m, ok := <-b.send(session, method, params):
		if !ok || m.Exception != nil {
			t.Fatalf("%s: %s", method, m.Exception)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				t.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(60 * time.Second):
		t.Fatalf("%s: no answer", method)
	}
}

// tab is a page in the browser, and what went wrong there.
type tab struct {
	*testing.T
	b        *browser
	session  string
	url      string // of the page
	mu       sync.Mutex
	errors   []string // of the console
	requests []string // but for the page itself
}

type object map[string]any

// open shows a page of so many pixels in a new tab, in the theme "light" or "dark", and waits until
// it is drawn.
func (b *browser) open(t *testing.T, page []byte, width, height int, theme string) *tab {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	var target struct{ TargetID, SessionID string }
	b.call(t, "", "Target.createTarget", object{"url": "about:blank"}, &target)
	b.call(t, "", "Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &target)
	p := &tab{T: t, b: b, session: target.SessionID, url: "file://" + file}
	b.mu.Lock()
	b.events[p.session] = p.event
	b.mu.Unlock()
	t.Cleanup(func() { b.send("", "Target.closeTarget", object{"targetId": target.TargetID}) })
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.do(domain+".enable", nil, nil)
	}
	p.do("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": theme}}}, nil)
	p.do("Emulation.setDeviceMetricsOverride", object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	p.load("")
	return p
}

// load opens the page afresh, with this address in it, and waits until it is drawn.
func (p *tab) load(address string) {
	p.Helper()
	p.do("Page.navigate", object{"url": "about:blank"}, nil)
	p.do("Page.navigate", object{"url": p.url + address}, nil)
	p.wait(`document.documentElement?.dataset.ready`)
}

func (p *tab) event(m message) {
	var d struct {
		Type, URL        string
		Entry            struct{ Level, Text string }
		Request          struct{ URL string }
		ExceptionDetails struct{ Exception struct{ Description string } }
		Args             []struct{ Value any }
	}
	json.Unmarshal(m.Params, &d)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m.Method {
	case "Runtime.exceptionThrown":
		p.errors = append(p.errors, d.ExceptionDetails.Exception.Description)
	case "Runtime.consoleAPICalled":
		p.errors = append(p.errors, fmt.Sprint(d.Type, d.Args))
	case "Log.entryAdded":
		p.errors = append(p.errors, d.Entry.Level+": "+d.Entry.Text)
	case "Network.requestWillBeSent":
		if u := d.Request.URL; !strings.HasPrefix(u, p.url) && !strings.HasPrefix(u, "data:") {
			p.requests = append(p.requests, u)
		}
	case "Page.javascriptDialogOpening":
		p.errors = append(p.errors, "a dialog")
	}
}

func (p *tab) do(method string, params, result any) {
	p.Helper()
	p.b.call(p.T, p.session, method, params, result)
}

// eval runs an expression in the page; result may be nil.
func (p *tab) eval(expression string, result any) {
	p.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	p.do("Runtime.evaluate", object{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		p.Fatalf("%s: %s", expression, r.ExceptionDetails.Exception.Description)
	}
	if result != nil && len(r.Result.Value) > 0 {
		if err := json.Unmarshal(r.Result.Value, result); err != nil {
			p.Fatalf("%s: %s: %v", expression, r.Result.Value, err)
		}
	}
}

func (p *tab) text(selector string) string {
	p.Helper()
	var s string
	p.eval(fmt.Sprintf("document.querySelector(%q).textContent", selector), &s)
	return s
}

// number reads a data attribute.
func (p *tab) number(selector, name string) float64 {
	p.Helper()
	p.settle()
	var n float64
	p.eval(fmt.Sprintf("Number(document.querySelector(%q).dataset.%s)", selector, name), &n)
	return n
}

// wait waits until an expression is true.
func (p *tab) wait(expression string) {
	p.Helper()
	for end := time.Now().Add(60 * time.Second); ; {
		var ok bool
		p.eval("!!("+expression+")", &ok)
		if ok {
			return
		}
		if time.Now().After(end) {
			p.Fatalf("never: %s (page says %q)", expression, p.text("body"))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// settle waits until the page has followed the last input.
func (p *tab) settle() {
	p.Helper()
	p.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))", nil)
}

func (p *tab) click(selector string) {
	p.Helper()
	p.eval(fmt.Sprintf("document.querySelector(%q).click()", selector), nil)
	p.settle()
}

// press presses keys as a keyboard does: "Tab", "ArrowDown", "a".
func (p *tab) press(keys ...string) {
	p.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Backspace": 8}
	for _, key := range keys {
		down := object{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
		if len(key) == 1 {
			down["text"] = key
		} else if key == "Enter" {
			down["text"] = "\r"
		}
		p.do("Input.dispatchKeyEvent", down, nil)
		p.do("Input.dispatchKeyEvent", object{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}, nil)
		p.settle()
	}
}

// mouse presses, moves or releases ("mousePressed", "mouseMoved", "mouseReleased") at a place of an
// element, in shares of its size.
func (p *tab) mouse(kind, selector string, x, y float64) {
	p.Helper()
	var place struct{ X, Y, Width, Height float64 }
	p.eval(fmt.Sprintf(`(() => {
		const x = document.querySelector(%q), at = () => x.getBoundingClientRect(), y = at().top + %v * at().height;
		if (y < 60 || y > innerHeight - 60) x.scrollIntoView({ block: "center", behavior: "instant" });
		return at().toJSON();
	})()`, selector, y), &place)
	p.do("Input.dispatchMouseEvent", object{"type": kind, "x": place.X + x*place.Width, "y": place.Y + y*place.Height, "button": "left", "buttons": 1, "clickCount": 1}, nil)
	p.settle()
}

// clean fails if anything went wrong in the page, or if it asked for anything.
func (p *tab) clean() {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.errors {
		p.Errorf("console: %s", e)
	}
	for _, r := range p.requests {
		p.Errorf("request: %s", r)
	}
}

// screenshot is kept in the folder that VRAMPROF_SCREENSHOTS names, to be looked at.
func (p *tab) screenshot(name string) []byte {
	p.Helper()
	var shot struct{ Data string }
	p.do("Page.captureScreenshot", object{"format": "png", "captureBeyondViewport": true}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.Fatal(err)
	}
	if folder := os.Getenv("VRAMPROF_SCREENSHOTS"); folder != "" {
		if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o644); err != nil {
			p.Fatal(err)
		}
	}
	return png
}
