// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/report"
	reportprofile "github.com/vramprof/vramprof/report/profile"
	reporttext "github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/ledger"
)

var (
	update = flag.Bool("update", false, "write the golden files anew")
	record = flag.Bool("record", false, "record the events of testdata/replay anew (as root)")
)

const replayFolder = "testdata/replay"

// replayed is what a replay needs besides the events.
type replayed struct {
	Begin, End uint64
	Processes  []ledger.Process
	Stacks     recordedStacks
}

type recordedStacks map[uint64][]callstack.Frame

func (s recordedStacks) Stack(id uint64) []callstack.Frame { return s[id] }

// The program whose events are in testdata/replay.
const replayedScript = `malloc a 1048576
malloc b 4096
driver_malloc c 2097152
free b
pinned p 65536
managed m 1000000
fail 99999999999999
free0
malloc0
badfree
threads 4
malloc t 300000
end
`

func TestRecordReplay(t *testing.T) {
	if !*record {
		t.Skip("only with -record")
	}
	fake := fakecuda.Build(t)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte(replayedScript), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, variable := range fake.Env(t, 1, 1<<33) {
		name, value, _ := bytes.Cut([]byte(variable), []byte("="))
		t.Setenv(string(name), string(value))
	}
	tr, err := New(Config{Command: []string{fake.Program("alloc_c"), script}})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	var events bytes.Buffer
	tr.events.tap = func(raw []byte) { events.Write(raw) }
	if err := tr.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	s := tr.Snapshot()
	rec := replayed{Begin: s.Begin, End: s.End, Processes: s.Processes, Stacks: recordedStacks{}}
	for i := range rec.Processes {
		rec.Processes[i].Totals, rec.Processes[i].Exe = nil, "/usr/bin/alloc_c"
	}
	for _, site := range s.Sites {
		rec.Stacks[site.Stack] = tr.Stack(site.Stack)
	}
	for _, failure := range s.Failures {
		rec.Stacks[failure.Stack] = tr.Stack(failure.Stack)
	}
	for _, frames := range rec.Stacks {
		for i := range frames {
			if _, file, ok := strings.Cut(frames[i].File, "testdata/programs/"); ok {
				frames[i].File = "/src/" + file
			}
			if m := frames[i].Mapping; m != nil {
				clean := *m
				clean.Path = "/usr/lib/" + filepath.Base(m.Path)
				frames[i].Mapping = &clean
			}
		}
	}
	text, err := json.MarshalIndent(rec, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(replayFolder, "events.bin"), events.Bytes())
	write(t, filepath.Join(replayFolder, "session.json"), text)
}

// replay runs recorded events through decoding and the books.
func replay(t *testing.T) (*ledger.Snapshot, recordedStacks) {
	t.Helper()
	return replayWith(t, func(_ int, books *ledger.Ledger) *ledger.Ledger { return books })
}

// replayWith is replay with other books from each event on that before returns: it gets the number
// of events before and the books so far.
func replayWith(t *testing.T, before func(events int, books *ledger.Ledger) *ledger.Ledger) (*ledger.Snapshot, recordedStacks) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(replayFolder, "events.bin"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(replayFolder, "session.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rec replayed
	if err := json.Unmarshal(text, &rec); err != nil {
		t.Fatal(err)
	}
	books := ledger.New(ledger.Options{Begin: rec.Begin, Host: "replay"})
	for _, p := range rec.Processes {
		books.Tell(p)
	}
	for n := 0; len(raw) > 0; n++ {
		books = before(n, books)
		e, err := bpf.DecodeEvent(raw)
		if err != nil {
			t.Fatal(err)
		}
		size := int(unsafe.Sizeof(*e))
		var details *bpf.Details
		if row := cudaapi.ByID(e.Function); row != nil && row.WantsDetails() {
			details = bpf.DecodeDetails(raw)
			size += int(unsafe.Sizeof(*details))
		}
		raw = raw[size:]
		if event, ok := cudaapi.Translate(e, details); ok {
			books.Apply(&event)
		} else if e.Kind == bpf.KindExit {
			books.Apply(&ledger.Event{Op: ledger.Exit, PID: e.Pid, TID: e.Tid, Time: e.Time})
		}
	}
	return books.Snapshot(rec.End, time.Unix(1_800_000_000, 0).UTC()), rec.Stacks
}

func TestReplayedEventsGiveTheBooksOfTheProgram(t *testing.T) {
	s, _ := replay(t)
	want := map[ledger.Kind]ledger.Total{
		ledger.Device:  {LiveObjects: 2 + 4, LiveBytes: 1048576 + 2097152 + 4*300000, AllocObjects: 3 + 4, AllocBytes: 1048576 + 4096 + 2097152 + 4*300000},
		ledger.Pinned:  {LiveObjects: 1, LiveBytes: 65536, AllocObjects: 1, AllocBytes: 65536},
		ledger.Managed: {LiveObjects: 1, LiveBytes: 1000000, AllocObjects: 1, AllocBytes: 1000000},
	}
	got := map[ledger.Kind]ledger.Total{}
	for _, site := range s.Sites {
		total := got[site.Kind]
		total.LiveObjects += site.LiveObjects
		total.LiveBytes += site.LiveBytes
		total.AllocObjects += site.AllocObjects
		total.AllocBytes += site.AllocBytes
		got[site.Kind] = total
	}
	for kind, total := range want {
		if got[kind] != total {
			t.Errorf("kind %d: got %+v, want %+v", kind, got[kind], total)
		}
	}
	if len(s.Failures) != 1 || s.Failures[0].Result != 2 || s.Failures[0].Count != 1 {
		t.Errorf("failures: got %+v, want one that ran out of memory", s.Failures)
	}
}

// TestReplayedEventsGiveTheSameBooksAfterAnOpening at each event.
func TestReplayedEventsGiveTheSameBooksAfterAnOpening(t *testing.T) {
	want, _ := replay(t)
	openings := 0
	got, _ := replayWith(t, func(_ int, books *ledger.Ledger) *ledger.Ledger {
		openings++
		next := ledger.New(ledger.Options{Host: "replay"})
		books.Opening(next)
		return next
	})
	if got.Opened == 0 || openings < 10 {
		t.Errorf("%d openings, the last at %d", openings, got.Opened)
	}
	got.Opened = 0
	if !reflect.DeepEqual(got, want) {
		t.Errorf("books\n%+v, want\n%+v", got, want)
	}
}

func TestReplayedEventsGiveTheSameReports(t *testing.T) {
	s, stacks := replay(t)
	var leaks, packed bytes.Buffer
	if err := reporttext.WriteLeaks(&leaks, s, stacks, report.Options{}, reporttext.Screen{Width: 80}); err != nil {
		t.Fatal(err)
	}
	if err := reportprofile.Write(&packed, s, stacks); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&packed)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "leaks.txt", leaks.Bytes())
	golden(t, "profile.txt", []byte(p.String()))
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join(replayFolder, name)
	if *update {
		write(t, path, got)
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s differs (write it anew with -update); got:\n%s", path, got)
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// scratch is a folder of this process, which goes at its end.
var scratch string

func TestMain(m *testing.M) {
	RunHidden(os.Args) // the test binary stands in for the command
	var err error
	if scratch, err = os.MkdirTemp("", "vramprof-tracer-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}
