// SPDX-License-Identifier: Apache-2.0

package html_test

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/serve/web"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/html"
	"github.com/vramprof/vramprof/report/metrics"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// session is a session that grows by 256 MiB with each copy of its books: more than 0.1 GiB, so
// that each text differs.
type session struct {
	callstack.Stacks
	mu     sync.Mutex
	books  *ledger.Snapshot
	copies int
}

func newSession(in html.Input) *session { return &session{Stacks: in.Stacks, books: in.Snapshot} }

func (s *session) Glance() *ledger.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copies++
	x := *s.books
	x.End += uint64(s.copies) * 1e9
	x.Wall = x.Wall.Add(time.Duration(s.copies) * time.Second)
	x.Sites = slices.Clone(x.Sites)
	if len(x.Sites) > 0 {
		x.Sites[0].LiveBytes += uint64(s.copies) << 28
	}
	x.Tensors = slices.Clone(x.Tensors)
	if len(x.Tensors) > 0 {
		x.Tensors[0].LiveBytes += uint64(s.copies) << 28
		x.Tensors[0].Allocated += uint64(s.copies) << 28
	}
	x.Balances = slices.Clone(x.Balances)
	if len(x.Balances) > 0 {
		x.Balances[0].Usage += uint64(s.copies) << 28
	}
	if s.copies%2 == 0 { // sites change places
		slices.Reverse(x.Sites)
	}
	return &x
}

func (s *session) Snapshot() *ledger.Snapshot { return s.Glance() }
func (*session) Own() metrics.Own             { return metrics.Own{} }

// archive has one moment, of the books before they grew.
type archive struct{ in html.Input }

func (a archive) At(_ context.Context, t time.Time) (*ledger.Snapshot, callstack.Stacks, io.Closer, error) {
	if from, _, _ := a.Span(); t.Before(from) {
		return nil, nil, nil, web.NoMoment("nothing of this moment")
	}
	s := *a.in.Snapshot
	s.Wall = t
	return &s, a.in.Stacks, io.NopCloser(nil), nil
}

func (a archive) Chart(ctx context.Context, t time.Time, _ time.Duration) (*ledger.Snapshot, callstack.Stacks, *timeline.Timeline, io.Closer, error) {
	s, st, done, err := a.At(ctx, t)
	return s, st, a.in.Timeline, done, err
}

func (a archive) Span() (from, to time.Time, ok bool) {
	return a.in.Snapshot.Wall.Add(-time.Hour), a.in.Snapshot.Wall, true
}

func (a archive) Errors() ([]html.Error, uint64) {
	return []html.Error{{OOM: report.OOM{PID: 77, Comm: "<i>eval", Size: 2 << 30, API: "torch"}, Wall: a.in.Snapshot.Wall.Add(-30 * time.Minute)}}, 0
}

// server serves a session at an address that stays when it starts again.
type server struct {
	*http.Server
	address string
}

func serve(t *testing.T, address string, in html.Input) (*server, *session) {
	t.Helper()
	socket, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(in)
	w := web.New(web.Config{
		Session: s, Ready: func() bool { return true }, Archive: archive{in},
	})
	w.AddOOM(report.OOM{PID: 4242, Comm: "python3", Time: in.Snapshot.End, Size: 2 << 30, API: "cudaMalloc", Stack: 1})
	x := &server{&http.Server{Handler: w.Handler()}, socket.Addr().String()}
	go func() { _ = x.Serve(socket) }()
	t.Cleanup(func() { x.Close() })
	return x, s
}

func TestLivePageInChromium(t *testing.T) {
	b := html.OpenBrowser(t)
	in := html.Fixture()
	x, _ := serve(t, "127.0.0.1:0", in)
	p := b.Visit(t, "http://"+x.address+"/", 1400, "light")
	t.Run("updates keep the reader's choice", func(t *testing.T) {
		p.T = t
		updatesKeepChoice(p)
	})
	t.Run("a moment of the archive", func(t *testing.T) {
		p.T = t
		past(p)
		p.Clean()
	})
	t.Run("a server that starts again", func(t *testing.T) {
		p.T = t
		again(p, x, in)
	})
	t.Run("44 columns", func(t *testing.T) {
		x, _ := serve(t, "127.0.0.1:0", in)
		p := b.Visit(t, "http://"+x.address+"/", 352, "dark")
		var wide bool
		p.Eval(`document.documentElement.scrollWidth > innerWidth`, &wide)
		if wide {
			t.Error("wider than the window")
		}
		p.Screenshot("live-352")
		p.Clean()
	})
	t.Run("before anything is traced", func(t *testing.T) {
		x, _ := serve(t, "127.0.0.1:0", html.Input{Snapshot: &ledger.Snapshot{Host: "gpu-box-3", Begin: 5, End: 5, Wall: time.Now()}, Stacks: in.Stacks})
		p := b.Visit(t, "http://"+x.address+"/", 1200, "light")
		p.Wait(`document.documentElement.dataset.updates > 0`)
		p.Says(map[string]string{"#live-state": "Live", "#subtitle": "0 processes on gpu-box-3"})
		p.Screenshot("live-empty")
		p.Clean()
	})
	t.Run("hostile names", func(t *testing.T) { hostileNames(t, b) })
}

func updatesKeepChoice(p *html.Tab) {
	p.Wait(`document.documentElement.dataset.updates > 0`)
	p.Eval(`{ const s = document.getElementById("process"); s.value = "0"; s.dispatchEvent(new Event("change")); }`, nil)
	p.Click("#sites thead th:nth-child(4) button")
	p.Click("#sites tbody tr:nth-child(2) .site")
	p.Eval(`document.getElementById("flame").focus({ preventScroll: true })`, nil)
	p.Press("Home", "ArrowDown", "ArrowDown", "ArrowDown", "Enter")
	p.Eval(`document.getElementById("boxes").open = true; document.getElementById("errors").open = true`, nil)
	p.Wait(`location.hash.includes("site=") && location.hash.includes("zoom=")`)
	state := `[document.getElementById("process").value, document.querySelector("#crumbs [aria-current]").textContent, document.getElementById("selected-head").textContent,
		document.getElementById("selected-stack").textContent, document.getElementById("boxes").open, document.getElementById("errors").open,
		document.querySelector("#sites thead [aria-sort]").textContent, location.hash, Math.round(document.getElementById("selected").getBoundingClientRect().top / 4)].join("|")`
	var before, after, then string
	p.Eval(state, &before)
	sum, updates := p.Text("#sum"), p.Number("html", "updates")
	p.Screenshot("live-chosen")
	p.Wait(fmt.Sprintf(`document.documentElement.dataset.updates >= %v`, updates+1))
	p.Eval(state, &after)
	if then = p.Text("#sum"); then == sum || p.Number("html", "updates") < updates+1 {
		p.Errorf("the page did not follow: %q, then %q", sum, then)
	}
	if before != after {
		p.Errorf("the choice was\n%s, after an update\n%s", before, after)
	}
	p.Click("#pause")
	p.Says(map[string]string{"#live-state": "Paused"})
	p.Click("#pause")
	p.Says(map[string]string{"#live-state": "Live"})
	p.Eval(`new Promise((done) => setTimeout(done, 300))`, nil) // the address is noted
	var address string
	p.Eval(`location.hash`, &address)
	p.Load(address)
	if p.Text("#selected-head") == "" || p.Text("#crumbs [aria-current]") == "all" {
		p.Errorf("opened with %s the page shows site %q in %q", address, p.Text("#selected-head"), p.Text("#crumbs"))
	}
}

func past(p *html.Tab) {
	p.Says(map[string]string{"#errors summary": "2 out-of-memory errors", "#errors ul": "<i>eval [77] ran out of memory"})
	live := p.Text("#sum b")
	p.Eval(`document.querySelector("#errors li:last-child button").click()`, nil)
	p.Wait(`document.getElementById("live").dataset.state === "past"`)
	if then := p.Text("#sum b"); then == live {
		p.Errorf("the past has %s as now", then)
	}
	var search string
	p.Eval(`location.search`, &search)
	p.Load(search)
	p.Wait(`document.getElementById("live").dataset.state === "past"`)
	p.Screenshot("live-past")
	p.Click("#pause")
	p.Wait(`document.getElementById("live").dataset.state === "live" && document.getElementById("chart-section").hidden === false`)
}

func again(p *html.Tab, x *server, in html.Input) {
	x.Close()
	p.Wait(`document.getElementById("live").dataset.state === "lost"`)
	p.Says(map[string]string{"#live-state": "Connection lost, retrying", "#live-age": "ago"})
	p.Screenshot("live-lost")
	updates := p.Number("html", "updates")
	p.Forgive()
	serve(p.T, x.address, in)
	p.Wait(`document.getElementById("live").dataset.state === "live"`)
	for p.Number("html", "updates") == updates {
		time.Sleep(20 * time.Millisecond)
	}
}

func hostileNames(t *testing.T, b *html.Browser) {
	x, _ := serve(t, "127.0.0.1:0", html.Hostile())
	p := b.Visit(t, "http://"+x.address+"/", 1200, "light")
	p.Wait(`document.documentElement.dataset.updates > 0`)
	var bad float64
	p.Eval(`document.querySelectorAll("img, b b, i i, body script ~ script ~ script, iframe").length + (document.title === "owned") + (document.documentElement.scrollWidth > innerWidth)`, &bad)
	if bad != 0 {
		t.Errorf("%v foreign elements", bad)
	}
	p.Clean()
}

// A server sends sections only: a page that it shows has nothing else.
func TestSectionsHaveAllOfAPage(t *testing.T) {
	list, err := html.Sections(html.Large(10, 2))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range html.PayloadNames() {
		if !slices.ContainsFunc(list, func(x html.Section) bool { return x.Name == name }) {
			t.Errorf("no section has %q", name)
		}
	}
}

// TestVerdictsOfAnEarlierMomentSayWhen: a server judges at most every ten seconds.
func TestVerdictsOfAnEarlierMomentSayWhen(t *testing.T) {
	in := html.Large(10, 2)
	for ago, want := range map[uint64]bool{0: false, 1e8: false, 9e9: true} {
		in.Judged = in.Snapshot.End - ago
		list, err := html.Sections(in)
		if err != nil {
			t.Fatal(err)
		}
		var p struct{ Wall, Judged int64 }
		if err := json.Unmarshal(html.Join(list), &p); err != nil {
			t.Fatal(err)
		}
		if got := p.Judged != 0; got != want || got && p.Wall-p.Judged != int64(ago/1e6) {
			t.Errorf("%d ns ago: judged at %d, page of %d", ago, p.Judged, p.Wall)
		}
	}
}

// TestUpdateOfTenThousandSites bounds what an update takes; sums stay those of all sites.
func TestUpdateOfTenThousandSites(t *testing.T) {
	in := html.Large(10_000, 40)
	w := timeline.NewWindow(uint64(15 * time.Minute))
	want := uint64(0)
	for i := range 300 { // a full window
		s := *in.Snapshot
		s.End = s.Begin + uint64(i+1)*4e9
		w.Add(&s)
	}
	for i := range in.Snapshot.Sites {
		want += in.Snapshot.Sites[i].LiveBytes
	}
	in.Timeline, in.MaxSites, in.Live = w.Timeline(nil), 1000, &html.Live{}
	began := time.Now()
	list, err := html.Sections(in)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	plain := html.Join(list)
	var small bytes.Buffer
	z, _ := flate.NewWriter(&small, 3)
	z.Write(plain)
	z.Close()
	t.Logf("composed in %v: %d bytes, compressed %d", took.Round(time.Millisecond), len(plain), small.Len())
	if len(plain) > 2<<20 || small.Len() > 1<<20 {
		t.Errorf("an update takes %d bytes, compressed %d", len(plain), small.Len())
	}
	var x struct{ Entries struct{ Live []uint64 } }
	if err := json.Unmarshal(plain, &x); err != nil {
		t.Fatal(err)
	}
	got := uint64(0)
	for _, n := range x.Entries.Live {
		got += n
	}
	if got != want || len(x.Entries.Live) > 1010 {
		t.Errorf("%d entries have %d bytes, all sites %d", len(x.Entries.Live), got, want)
	}
}
