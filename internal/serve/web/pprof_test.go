// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// two sessions in one: a pod's process and another.
func podSnapshot() *ledger.Snapshot {
	l := ledger.New(ledger.Options{})
	for pid := uint32(7); pid <= 8; pid++ {
		p := ledger.Process{PID: pid, Begin: 1, Comm: "python3", Exe: "/usr/bin/python3"}
		if pid == 7 {
			p.Workload = ledger.Workload{Pod: "train-0", Namespace: "ml"}
		}
		l.Tell(p)
		for k := range uint64(4) {
			l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: pid, Device: int32(k % 2), Time: 10 + k, Address: 0x1000 * (k + 1), Size: 1 << 20, Stack: 1 + k, API: "cudaMalloc"})
		}
	}
	return l.Snapshot(1e9, time.Unix(1000, 0))
}

func profileFrom(t *testing.T, s *Server, path string) *profile.Profile {
	t.Helper()
	w := ask(t, s, "GET", path, nil)
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/octet-stream" {
		t.Fatalf("%s: %d %s %s", path, w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	p, err := profile.Parse(w.Body)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return p
}

// inUse sums a sample type.
func inUse(p *profile.Profile, name string) (sum int64) {
	for i, kind := range p.SampleType {
		for _, x := range p.Sample {
			if kind.Type == name {
				sum += x.Value[i]
			}
		}
	}
	return sum
}

func TestProfilesOfAProcessAPodAPlaneAndADevice(t *testing.T) {
	s := newServer(named{&fakeSession{snapshot: podSnapshot()}, reporttest.Stacks()})
	for path, want := range map[string]int64{
		"":                           8 << 20,
		"?gc=1":                      8 << 20,
		"?pid=7&gc=1&pid=7":          4 << 20,
		"?pid=7":                     4 << 20,
		"?pod=train-0":               4 << 20,
		"?pod=ml/train-0":            4 << 20,
		"?plane=driver":              8 << 20,
		"?plane=tensor":              0,
		"?device=cuda:1":             4 << 20,
		"?pid=7&device=1":            2 << 20,
		"?pod=train-0&pid=7":         4 << 20,
		"?pid=8&plane=driver&gc=1":   4 << 20,
		"?debug=0&device=GPU-0":      0,
		"?pid=7&plane=before":        0,
		"?pid=7&device=cuda%3A1&gc=": -400,
		"?pid=9":                     -404,
		"?pod=other/train-0":         -404,
		"?pid=7&pod=train-1":         -404,
		"?pid=0":                     -400,
		"?pid=7&pid=8":               -400,
		"?pidd=7":                    -400,
		"?plane=nothing":             -400,
		"?seconds=0":                 -400,
		"?seconds=301":               -400,
		"?seconds=x":                 -400,
		"?seconds=1&debug=1":         -400,
		"?seconds=1&at=1":            -400,
		"?device=;":                  -400,
		"?at=yesterday":              -400,
		"?at=2026-11-22T03:12:00Z":   -404, // without an archive
		"?debug=1&plane=driver":      -400,
	} {
		if want < 0 {
			w := ask(t, s, "GET", "/debug/pprof/gpu"+path, nil)
			if w.Code != int(-want) || w.Header().Get("X-Go-Pprof") != "1" || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
				t.Errorf("%s: %d, want %d: %v %s", path, w.Code, -want, w.Header(), w.Body)
			}
			continue
		}
		if got := inUse(profileFrom(t, s, "/debug/pprof/gpu"+path), "inuse_space"); got != want {
			t.Errorf("%s: %d bytes, want %d", path, got, want)
		}
	}
}

func TestAliasesForScrapersOfGoPrograms(t *testing.T) {
	s := newServer(torchSession())
	for path, want := range map[string]string{"/debug/pprof/gpu": "inuse_space", "/gpu/debug/pprof/heap": "inuse_space", "/gpu/debug/pprof/allocs": "alloc_space"} {
		p := profileFrom(t, s, path)
		if p.DefaultSampleType != want || len(p.Sample) == 0 {
			t.Errorf("%s: default %s, %d samples", path, p.DefaultSampleType, len(p.Sample))
		}
	}
}

func TestDebugIsText(t *testing.T) {
	w := ask(t, newServer(torchSession()), "GET", "/debug/pprof/gpu?debug=1", nil)
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") || !strings.Contains(w.Body.String(), "GiB") {
		t.Errorf("%d %s: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
	}
}

// growing is a session that allocates 1 MiB between two snapshots.
type growing struct {
	named
	l *ledger.Ledger
	n uint64
}

func newGrowing() *growing {
	g := &growing{named: named{&fakeSession{}, reporttest.Stacks()}, l: ledger.New(ledger.Options{})}
	g.l.Tell(ledger.Process{PID: 7, Begin: 1, Comm: "python3"})
	return g
}

func (g *growing) Snapshot() *ledger.Snapshot {
	g.n++
	g.taken++
	g.l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Time: g.n * 1e9, Address: g.n << 20, Size: 1 << 20, Stack: 1, API: "cudaMalloc"})
	return g.l.Snapshot(g.n*1e9, time.Unix(int64(1000+g.n), 0))
}

func TestSecondsIsADifference(t *testing.T) {
	s := newServer(newGrowing())
	began := time.Now()
	p := profileFrom(t, s, "/debug/pprof/gpu?seconds=1")
	if took := time.Since(began); took < time.Second {
		t.Errorf("it took %s", took)
	}
	if got := inUse(p, "inuse_space"); got != 1<<20 || p.DurationNanos != 1e9 {
		t.Errorf("%d bytes in %s, want 1 MiB in 1s", got, time.Duration(p.DurationNanos))
	}
}

func TestSecondsEndsWithTheClient(t *testing.T) {
	s := newServer(newGrowing())
	address := listen(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+address+"/debug/pprof/gpu?seconds=300", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := http.DefaultClient.Do(r); err == nil {
		t.Fatal("it was answered")
	}
	for end := time.Now().Add(5 * time.Second); s.waiting.taken() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the request still waits")
		}
	}
}

func TestSameQuestionsOfAMomentAreComposedOnce(t *testing.T) {
	session := torchSession()
	s := newServer(session)
	first := ask(t, s, "GET", "/debug/pprof/gpu", nil).Body.Bytes()
	for range 5 {
		if !bytes.Equal(ask(t, s, "GET", "/debug/pprof/gpu", nil).Body.Bytes(), first) {
			t.Error("the answers differ")
		}
	}
	if session.taken != 1 || len(s.answers.list) != 1 {
		t.Errorf("%d snapshots, %d answers", session.taken, len(s.answers.list))
	}
}

// archive has one moment.
type archive struct{ at time.Time }

func (a archive) At(_ context.Context, t time.Time) (*ledger.Snapshot, callstack.Stacks, io.Closer, error) {
	if !t.Equal(a.at) {
		return nil, nil, nil, NoMoment("it begins at " + a.at.String())
	}
	return podSnapshot(), reporttest.Stacks(), io.NopCloser(nil), nil
}

func TestAtIsAMomentOfTheArchive(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 12, 0, 0, time.UTC)
	s := New(Config{Session: torchSession(), Archive: archive{at}})
	for _, text := range []string{"2026-11-22T03:12:00Z", fmt.Sprint(at.Unix()), at.Local().Format("2006-01-02+15:04")} {
		if got := inUse(profileFrom(t, s, "/debug/pprof/gpu?pid=7&at="+text), "inuse_space"); got != 4<<20 {
			t.Errorf("%s: %d bytes", text, got)
		}
	}
	if w := ask(t, s, "GET", "/debug/pprof/gpu?at=2026-11-22T03:13:00Z", nil); w.Code != 404 || !strings.Contains(w.Body.String(), "it begins at") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestGoToolReadsProfilesAndErrors runs the real go tool pprof.
func TestGoToolReadsProfilesAndErrors(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go tool")
	}
	address := listen(t, newServer(torchSession()))
	pprof := func(path string) (string, error) {
		cmd := exec.Command("go", "tool", "pprof", "-top", "-symbolize=none", "http://"+address+path)
		cmd.Env = append(cmd.Environ(), "PPROF_TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := pprof("/debug/pprof/gpu?plane=tensor")
	if err != nil || !strings.Contains(out, "Type: inuse_space") || !strings.Contains(out, "train.py") && !strings.Contains(out, "MB") {
		t.Errorf("%v: %s", err, out)
	}
	out, err = pprof("/debug/pprof/gpu?pid=4")
	if err == nil || !strings.Contains(out, "no traced process is process 4") {
		t.Errorf("%v: %s", err, out)
	}
}

func FuzzQuery(f *testing.F) {
	for _, text := range []string{"pid=7&plane=tensor", "at=2026-11-22+03:12", "seconds=5&debug=1", "pod=a/b&device=0", "older=1h&top=3&view=tree", "a;b", "%zz", "pid=7&pid=8"} {
		f.Add(text)
	}
	known := []string{"pid", "pod", "plane", "device", "at", "seconds", "debug", "gc", "view", "top", "older"}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parseQuery(raw, known...)
		if err != nil {
			if request, ok := err.(*requestError); !ok || request.code != http.StatusBadRequest {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		if q.seconds < 0 || q.seconds > maxSeconds || q.top < 0 || q.top > maxTop || q.older < 0 || q.seconds > 0 && q.debug || len(q.pod) > maxValue {
			t.Errorf("%q: %+v", raw, q)
		}
		if _, err := q.of(podSnapshot()); err != nil && q.pid == 0 && q.pod == "" {
			t.Errorf("%q: %v", raw, err)
		}
	})
}
