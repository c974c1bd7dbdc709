// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

var snapshotViews = map[string]func(io.Writer, *ledger.Snapshot, callstack.Stacks, Options, Screen) error{"tree": WriteTree, "table": WriteTable}

func TestViewsOfASnapshotAreStable(t *testing.T) {
	for name, write := range snapshotViews {
		for width, s := range map[string]*ledger.Snapshot{"": torchSnapshot(), "c": testSnapshot()} {
			var b bytes.Buffer
			st := torchStacks()
			if width == "c" {
				st = testStacks()
			}
			if err := write(&b, s, st, Options{}, Screen{Width: 80}); err != nil {
				t.Fatal(err)
			}
			golden(t, name+width+"80.txt", b.Bytes())
			for line := range strings.Lines(b.String()) {
				if n := columns(strings.TrimSuffix(line, "\n")); n > 80 {
					t.Errorf("%s: %d columns: %s", name, n, line)
				}
			}
		}
	}
}

// everyView writes each view and report as text, by name.
func everyView(t *testing.T, s *ledger.Snapshot, st callstack.Stacks, width int) map[string]string {
	t.Helper()
	screen, o, since := Screen{Width: width}, Options{}, Options{Since: earlier(s)}
	changed := *s
	changed.Sites = slices.Clone(s.Sites[1:])
	a, b := NewProfile(s, st), NewProfile(&changed, st)
	oom := OOM{PID: s.Processes[0].PID, Time: s.End, Stack: 1, API: "torch", Kind: ledger.Tensor, Size: 3 << 30, Allocated: 2 << 30, Reserved: 5 << 30}
	texts := map[string]string{}
	for name, write := range map[string]func(io.Writer) error{
		"tree":           func(w io.Writer) error { return WriteTree(w, s, st, o, screen) },
		"table":          func(w io.Writer) error { return WriteTable(w, s, st, o, screen) },
		"stats":          func(w io.Writer) error { return WriteStats(w, s, torchSizes(), st, o, screen) },
		"timeline":       func(w io.Writer) error { return WriteTimeline(w, s, torchTimeline(s), st, o, screen) },
		"tree since":     func(w io.Writer) error { return WriteTree(w, s, st, since, screen) },
		"table since":    func(w io.Writer) error { return WriteTable(w, s, st, since, screen) },
		"stats since":    func(w io.Writer) error { return WriteStats(w, s, torchSizes(), st, since, screen) },
		"timeline since": func(w io.Writer) error { return WriteTimeline(w, s, torchTimeline(s), st, since, screen) },
		"summary":        func(w io.Writer) error { return WriteSummary(w, s, st, o, screen) },
		"leaks":          func(w io.Writer) error { return WriteLeaks(w, s, st, o, screen) },
		"older":          func(w io.Writer) error { return WriteLeaks(w, s, st, Options{Older: time.Hour}, screen) },
		"diff": func(w io.Writer) error {
			return WriteDiff(w, Diff(a, b), [2]string{"a", "b"}, o, screen)
		},
		"oom": func(w io.Writer) error { return WriteOOM(w, s, st, oom, o, screen) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		texts[name] = b.String()
	}
	return texts
}

var byteFigure = regexp.MustCompile(`[-+]?[0-9][0-9.,]* (B|[KMGT]iB)\b`)

// TestEveryViewFitsEveryScreen: no line is wider than the terminal from 20 columns on, and no amount is cut that a wide one shows.
func TestEveryViewFitsEveryScreen(t *testing.T) {
	for name, s := range map[string]*ledger.Snapshot{"torch": torchSnapshot(), "CUDA": testSnapshot()} {
		st := torchStacks()
		if name == "CUDA" {
			st = testStacks()
		}
		amounts := map[string]map[string]bool{}
		for width := 200; width >= minWidth; width-- {
			for view, text := range everyView(t, s, st, width) {
				if checkText(t, text, width); t.Failed() {
					t.Fatalf("%s of %s at %d columns:\n%s", view, name, width, text)
				}
				found := map[string]bool{}
				for _, x := range byteFigure.FindAllString(strings.Join(strings.Fields(text), " "), -1) {
					found[x] = true
				}
				if width == 200 {
					amounts[view] = found
				}
				for x := range amounts[view] {
					if !found[x] && x != "0 B" { // parts that are 0 in all of a block are left out
						t.Errorf("%s of %s at %d columns lacks %s", view, name, width, x)
					}
				}
			}
		}
	}
}

// earlier is the same recording at half of its time: each site had half of what it has, but for the last, which has been freed in part.
func earlier(s *ledger.Snapshot) *ledger.Snapshot {
	e := *s
	e.End = s.Begin + (s.End-s.Begin)/2
	e.Sites = slices.Clone(s.Sites)
	for i := range e.Sites {
		x := &e.Sites[i]
		x.LiveBytes, x.LiveObjects, x.AllocBytes, x.AllocObjects = x.LiveBytes/2, x.LiveObjects/2, x.AllocBytes/2, x.AllocObjects/2
	}
	e.Sites[len(e.Sites)-1].LiveBytes *= 6
	return &e
}

func TestViewsOfAnIntervalShowWhatChanged(t *testing.T) {
	s, st := torchSnapshot(), torchStacks()
	s.Sites[len(s.Sites)-1].AllocObjects += 100
	views := everyView(t, s, st, 80)
	for _, view := range []string{"tree", "table", "stats"} {
		golden(t, "between-"+view+"80.txt", []byte(views[view+" since"]))
	}
	o := Options{Since: earlier(s)}
	var sum int64
	for _, r := range changedRows(s, st, o) {
		if r.plane != PlaneHost && r.plane != PlaneManaged && r.plane != PlaneAsleep {
			sum += r.bytes - r.before
		}
	}
	if tree := callTree(s, st, o); tree.bytes != sum || tree.changed == 0 {
		t.Errorf("the tree changed by %d, the rows by %d", tree.bytes, sum)
	}
	o.Since = s
	if tree := callTree(s, st, o); tree.changed != 0 || len(tree.children) != 0 || len(changedRows(s, st, o)) != 0 {
		t.Error("a moment differs from itself")
	}
}

func TestATimelineOnATelephoneIsStable(t *testing.T) {
	s := torchSnapshot()
	golden(t, "timeline44.txt", []byte(everyView(t, s, torchStacks(), 44)["timeline"]))
}

func TestTheTreeAddsUpToTheGPUMemoryOfTheProfile(t *testing.T) {
	s, st := torchSnapshot(), torchStacks()
	var want int64
	for _, h := range Holdings(s) {
		if !h.Apart() {
			want += h.Live
		}
	}
	root := callTree(s, st, Options{})
	var leaves func(b *branch) int64
	leaves = func(b *branch) int64 {
		sum, own := int64(0), b.bytes
		for _, c := range b.children {
			sum += leaves(c)
			own -= c.bytes
		}
		return sum + own
	}
	if want == 0 || root.bytes != want || leaves(root) != want {
		t.Errorf("the tree has %d, its branches %d, the profile %d", root.bytes, leaves(root), want)
	}
}

func TestADiffSaysWhichLineGrew(t *testing.T) {
	before, after, st := torchSnapshot(), torchSnapshot(), torchStacks()
	grown := &after.Sites[slices.IndexFunc(after.Sites, func(x ledger.Site) bool { return x.Kind == ledger.Tensor && x.Device == 0 })]
	grown.LiveBytes += 1 << 30
	after.Balances[after.BalanceOf(grown.Process, 0)].Usage += 1 << 30
	for i := range after.Tensors {
		if x := &after.Tensors[i]; x.Process == grown.Process && x.Device == grown.Device {
			x.LiveBytes += 1 << 30
		}
	}
	a, b := NewProfile(before, st), NewProfile(after, st)
	var file, text bytes.Buffer
	if err := WriteDifference(&file, a, b); err != nil {
		t.Fatal(err)
	}
	read, err := ReadProfile(&file)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteDiff(&text, Diff(a, b), [2]string{"a.vram", "b.vram"}, Options{}, Screen{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "diff80.txt", text.Bytes())
	var sum int64
	for _, x := range read.p.Sample {
		sum += x.Value[valueOf(read.p, "inuse_space")]
	}
	if want := total(b) - total(a); sum != want {
		t.Errorf("the difference has %d bytes, want %d", sum, want)
	}
	text.Reset()
	if err := WriteDiff(&text, Diff(a, a), [2]string{}, Options{}, Screen{}); err != nil || strings.Contains(text.String(), "model.py") {
		t.Errorf("a profile differs from itself: %v\n%s", err, text.String())
	}
}

func total(p Profile) (sum int64) {
	for _, x := range p.p.Sample {
		sum += x.Value[valueOf(p.p, "inuse_space")]
	}
	return sum
}

// torchTimeline is how the memory of torchSnapshot's first process went, with an error near the end.
func torchTimeline(s *ledger.Snapshot) *timeline.Timeline {
	const steps = 24
	row := timeline.Row{Process: 0, UUID: s.Balances[0].UUID, Device: 0, Unexplained: make([]int64, steps)}
	t := &timeline.Timeline{Processes: s.Processes, GPUs: s.GPUs}
	for i := range uint64(steps) {
		t.Times = append(t.Times, s.Begin+(s.End-s.Begin)/(steps-1)*i)
		tensors, cached, before := i<<28, (i%4)<<26, uint64(1<<30)
		row.Tensors, row.Cached, row.Before = append(row.Tensors, tensors), append(row.Cached, cached), append(row.Before, before)
		row.Usage = append(row.Usage, tensors+cached+before)
		row.Driver, row.Host = append(row.Driver, 0), append(row.Host, 64<<20)
	}
	t.Rows = []timeline.Row{row}
	t.Marks = []timeline.Mark{
		{Time: s.Begin, Kind: timeline.Began},
		{Time: t.Times[5], Kind: timeline.Large, Size: 3 << 30, Stack: 6, API: "cudaMalloc"},
		{Time: t.Times[20], Kind: timeline.OutOfMemory, Size: 2 << 30, Stack: 1, API: "torch"},
	}
	return t
}

func torchSizes() *timeline.Sizes {
	s := &timeline.Sizes{}
	s.Driver[21], s.Driver[24] = timeline.Bucket{Count: 3, Bytes: 6 << 20}, timeline.Bucket{Count: 90, Bytes: 1800 << 20}
	s.Tensors[9], s.Tensors[20] = timeline.Bucket{Count: 100_000, Bytes: 60 << 20}, timeline.Bucket{Count: 5, Bytes: 7 << 20}
	return s
}

func TestViewsOfARecordingAreStable(t *testing.T) {
	s, st := torchSnapshot(), torchStacks()
	s.Sites[len(s.Sites)-1].AllocObjects += 100 // one that allocates and frees over and over
	s.Sites[len(s.Sites)-1].AllocBytes += 100 << 20
	o, screen := Options{Top: 3}, Screen{Width: 80}
	for name, write := range map[string]func(w io.Writer) error{
		"timeline80.txt": func(w io.Writer) error { return WriteTimeline(w, s, torchTimeline(s), st, o, screen) },
		"stats80.txt":    func(w io.Writer) error { return WriteStats(w, s, torchSizes(), st, o, screen) },
		"view-tree.json": func(w io.Writer) error {
			return WriteViewJSON(w, View{Name: "tree", Snapshot: s, Stacks: st}, o)
		},
		"view-table.json": func(w io.Writer) error {
			return WriteViewJSON(w, View{Name: "table", Snapshot: s, Stacks: st}, o)
		},
		"view-stats.json": func(w io.Writer) error {
			return WriteViewJSON(w, View{Name: "stats", Snapshot: s, Stacks: st, Sizes: torchSizes()}, o)
		},
		"view-timeline.json": func(w io.Writer) error {
			return WriteViewJSON(w, View{Name: "timeline", Snapshot: s, Stacks: st, Timeline: torchTimeline(s)}, o)
		},
	} {
		var b, again bytes.Buffer
		if err := errors.Join(write(&b), write(&again)); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.Bytes())
		if b.String() != again.String() {
			t.Errorf("%s differs when it is written again", name)
		}
		for line := range strings.Lines(b.String()) {
			if n := columns(strings.TrimSuffix(line, "\n")); n > 80 && strings.HasSuffix(name, ".txt") {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
}

func TestPprofReadsADifference(t *testing.T) {
	pprof, _ := pprofOf(t, torchStacks())
	a := NewProfile(torchSnapshot(), torchStacks())
	after := torchSnapshot()
	after.Sites[0].LiveBytes /= 2
	file := filepath.Join(t.TempDir(), "diff.pb.gz")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(WriteDifference(f, a, NewProfile(after, torchStacks())), f.Close()); err != nil {
		t.Fatal(err)
	}
	if out := pprof(t, "-top", file); !strings.Contains(out, "flat%") || !strings.Contains(out, "-") {
		t.Errorf("pprof says\n%s", out)
	}
}
