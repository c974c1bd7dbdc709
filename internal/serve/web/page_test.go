// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// event is one of a stream.
type event struct{ id, name, data string }

// follow follows the page, as a client that takes gzip or not.
func follow(t *testing.T, address, id string, zipped bool) (*http.Response, func() event) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+address+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if id != "" {
		r.Header.Set("Last-Event-ID", id)
	}
	r.Header.Set("Accept-Encoding", map[bool]string{true: "gzip", false: "identity"}[zipped])
	x, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Body.Close() })
	body := io.Reader(x.Body)
	if zipped && x.StatusCode == http.StatusOK {
		if body, err = gzip.NewReader(x.Body); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewReader(body)
	return x, func() (e event) {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch {
			case key == "id":
				e.id = value
			case key == "event":
				e.name = value
			case key == "data":
				e.data = value
			case key == "" && e.name == "data":
				return e
			case key == "":
				e = event{}
			}
		}
	}
}

// sections returns what an update has, and the update that it is relative to.
func (e event) sections(t *testing.T) (after string, list map[string]json.RawMessage) {
	t.Helper()
	var x struct {
		After string
		Data  map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(e.data), &x); err != nil {
		t.Fatal(err)
	}
	return x.After, x.Data
}

func TestUpdatesHaveWhatChanged(t *testing.T) {
	session := torchSession()
	books := *session.snapshot
	address := listen(t, newServer(moving{session}))
	_, next := follow(t, address, "", true)
	first := next()
	after, all := first.sections(t)
	if after != "" || len(all["entries"]) == 0 || string(all["id"]) != `"`+first.id+`"` {
		t.Fatalf("the first update is after %q, has id %s and %d sections", after, all["id"], len(all))
	}
	second := next()
	after, some := second.sections(t)
	if after != first.id || len(some["tree"]) > 0 || len(some["end"]) == 0 || len(second.data) > len(first.data)/2 {
		t.Errorf("an update of %d bytes after %q has %d sections; the first, %q, has %d bytes", len(second.data), after, len(some), first.id, len(first.data))
	}
	_, again := follow(t, address, first.id, false)
	if after, _ := again().sections(t); after != first.id && after != "" {
		t.Errorf("connected again after %q, the update is after %q", first.id, after)
	}
	_, restarted := follow(t, address, "ANOTHERRUN-7", false)
	if after, all := restarted().sections(t); after != "" || len(all["entries"]) == 0 {
		t.Errorf("after an update of another run, the update is after %q", after)
	}
	if books.End != session.snapshot.End {
		t.Error("the session's books changed")
	}
}

// moving is a session whose time goes on.
type moving struct{ named }

func (m moving) Glance() *ledger.Snapshot {
	s := *m.named.Glance()
	s.End += uint64(m.taken) * 1e9
	return &s
}

func TestNothingIsComposedWhileNobodyWatches(t *testing.T) {
	session := torchSession()
	s := newServer(session)
	s.page.linger = 0
	address := listen(t, s)
	x, next := follow(t, address, "", true)
	next()
	x.Body.Close()
	for {
		s.page.watchers.mu.Lock()
		runs := s.page.watchers.runs
		s.page.watchers.mu.Unlock()
		if !runs {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !s.page.mu.TryLock() {
		t.Error("something is composed")
	}
}

// TestASlowPageSkipsUpdates: however many there are, it finds the latest.
func TestASlowPageSkipsUpdates(t *testing.T) {
	s := newServer(torchSession())
	s.page.watchers.runs = true // nothing is composed by itself
	x := s.page.join(localPeer(0))
	for range 5 {
		s.page.watchers.tell()
	}
	if n := len(x.news); n != 1 {
		t.Errorf("%d updates wait for a slow page", n)
	}
}

// TestAPageThatIsOpenedAgainHasItsChart: moments are taken for some time, and nothing is composed.
func TestAPageThatIsOpenedAgainHasItsChart(t *testing.T) {
	s := newServer(moving{torchSession()})
	u, err := s.page.current()
	if err != nil {
		t.Fatal(err)
	}
	s.page.sample()
	if s.page.latest != u {
		t.Error("an update was composed")
	}
	if tl := s.page.window.Timeline(nil); tl == nil || len(tl.Times) == 0 {
		t.Error("the chart is empty")
	}
}

func TestWatchersAreBoundedAndEndWithTheServer(t *testing.T) {
	s := newServer(torchSession())
	address := listen(t, s)
	var open []*http.Response
	for range maxWatchers {
		x, _ := follow(t, address, "", false)
		open = append(open, x)
	}
	if x, _ := follow(t, address, "", false); x.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one page too many: %s", x.Status)
	}
	s.end.Do(func() { close(s.ending) })
	var all sync.WaitGroup
	for _, x := range open {
		all.Go(func() { _, _ = io.Copy(io.Discard, x.Body) })
	}
	all.Wait()
}

// TestUpdatesKeepWithinTheirShare: a client that asks all the time gets the same update.
func TestUpdatesKeepWithinTheirShare(t *testing.T) {
	session := torchSession()
	s := newServer(session)
	for range 50 {
		if w := get(t, s.Handler(), "/data"); w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
	}
	if session.taken > 2 {
		t.Errorf("50 requests took %d copies of the books", session.taken)
	}
}

func TestPolicyOfThePageAllowsItsOwnScriptAndServerOnly(t *testing.T) {
	w := get(t, newServer(hostileSession()).Handler(), "/")
	if w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	got := w.Header().Get("Content-Security-Policy")
	want := regexp.MustCompile(`^default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'; img-src data:; base-uri 'none'; form-action 'none'; connect-src 'self'; frame-ancestors 'none'$`)
	if !want.MatchString(got) {
		t.Errorf("policy %s", got)
	}
	page := w.Body.String()
	for _, bad := range []string{"onerror", "<script>alert", "\u202e", "<b>"} {
		if strings.Contains(page[:strings.Index(page, `<script id="data"`)], bad) {
			t.Errorf("the page has %q outside its data", bad)
		}
	}
	if n := strings.Count(page, "<script"); n != 2 {
		t.Errorf("%d scripts", n)
	}
	if n := len(regexp.MustCompile(`(?i)\son\w+=`).FindAllString(page[:strings.Index(page, `<script id="data"`)], -1)); n != 0 {
		t.Errorf("%d inline handlers", n)
	}
}

func TestNamesInUpdatesAreCleanJSON(t *testing.T) {
	address := listen(t, newServer(hostileSession()))
	_, next := follow(t, address, "", true)
	e := next()
	_, _ = e.sections(t)
	for _, bad := range []string{"<", "\u202e", "\u2028", "\x1b"} {
		if strings.Contains(e.data, bad) {
			t.Errorf("an update has %q", bad)
		}
	}
}

const evil = "</script><script>alert(1)</script><b>\x1b[31m\u202e\u2028\n\ndata: {}\n\n"

// hostileSession has names that try to leave the data.
func hostileSession() named {
	name := evil + strings.Repeat("x", 10_000)
	stacks := func(uint64) []callstack.Frame {
		return []callstack.Frame{{Function: name, File: name, Python: true}, {Function: "<img src=x onerror=alert(1)>"}}
	}
	return named{&fakeSession{snapshot: &ledger.Snapshot{
		Host: name, Begin: 1, End: 2e9, Wall: time.Unix(1_790_000_000, 0), Warnings: []string{name},
		Processes: []ledger.Process{{PID: 1, Comm: name, Begin: 1, Workload: ledger.Workload{Pod: name, Job: name}}},
		Sites:     []ledger.Site{{Stack: 1, API: name, Kind: ledger.Device, LiveBytes: 1 << 20, LiveObjects: 1}},
	}}, stacksOf(stacks)}
}

type stacksOf func(uint64) []callstack.Frame

func (f stacksOf) Stack(id uint64) []callstack.Frame { return f(id) }

func TestErrorsOfTheSessionAreListed(t *testing.T) {
	session := torchSession()
	s := newServer(session)
	s.AddOOM(report.OOM{PID: 42, Comm: "python3", Time: session.snapshot.End, Size: 2 << 30, Device: 0, API: "torch"})
	w := get(t, s.Handler(), "/data")
	if text := w.Body.String(); !strings.Contains(text, `"process":"python3 [42]","text":"ran out of memory on cuda:0 (wanted 2.00 GiB)"`) {
		t.Errorf("the page lacks the error: %.2000s", text[strings.LastIndex(text, `"live"`):])
	}
}
