// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// samples writes snapshots into files: the training, one with holders, random ones, and one with
// more entries than a batch has.
func samples(t *testing.T) (files []string, views []*viewed) {
	t.Helper()
	dir := t.TempDir()
	add := func(c *Collector, at uint64) {
		text := torchFile(t, c, at)
		file := filepath.Join(dir, fmt.Sprintf("%d.pickle", len(files)))
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		files, views = append(files, file), append(views, view(t, text))
	}
	add(play(training(false), begin+10*second, CollectorOptions{}), begin+10*second)
	add(play(training(true), begin+10*second, CollectorOptions{PID: 5151}), begin+10*second)
	add(heldCollector(), 1060*second)
	for seed := range uint64(20) {
		random := &chaos{Rand: rand.New(rand.NewPCG(seed, 3))}
		c := NewCollector(ledger.New(ledger.Options{Begin: begin}), CollectorOptions{Events: 1 + random.IntN(3000)})
		n := 100 + random.IntN(400)
		if seed == 0 {
			n = 6000
		}
		for i := range n {
			e := random.event(begin + uint64(i)*1000)
			if e.Op == ledger.Exec || e.Op == ledger.Exit {
				continue
			}
			c.Apply(&e)
			if random.IntN(100) == 0 {
				c.Tell(ledger.BlockList{PID: 4242, Blocks: []ledger.Block{{Address: mib * uint64(random.IntN(60)) / 2, Size: mib / 2, Device: 0}, {Address: 31 * mib, Size: mib, Device: 1}}})
			}
		}
		add(c, begin+uint64(n)*1000)
	}
	return files, views
}

// answers decodes one line of JSON for each file.
func answers[T any](t *testing.T, cmd *exec.Cmd, files []string) (list []T) {
	t.Helper()
	cmd.Args = append(cmd.Args, files...)
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(cmd.Path), err, problem.String())
	}
	for line := range strings.Lines(string(out)) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, v)
	}
	if len(list) != len(files) {
		t.Fatalf("%d answers for %d files", len(list), len(files))
	}
	return list
}

type pythonAnswer struct{ Segments, Blocks, Active, Flamegraph, Entries int64 }

func comparePython(t *testing.T, cmd *exec.Cmd) {
	files, views := samples(t)
	for i, got := range answers[pythonAnswer](t, cmd, files) {
		var want pythonAnswer
		for _, s := range views[i].segments {
			want.Segments += s.size
			for _, b := range s.blocks {
				if b.active {
					want.Active += b.size
				}
			}
		}
		want.Blocks, want.Flamegraph = want.Segments, want.Segments
		for _, trace := range views[i].traces {
			want.Entries += int64(len(trace))
		}
		if got != want || want.Segments == 0 || want.Entries == 0 {
			t.Errorf("file %d: Python has %+v, written was %+v", i, got, want)
		}
	}
}

// torch/cuda/_memory_viz.py of PyTorch 2.6, in its own Python.
func TestPyTorchsOwnToolsReadSnapshots(t *testing.T) {
	root := realtorch.Prepare(t)
	script, err := filepath.Abs("testdata/memory_viz.py")
	if err != nil {
		t.Fatal(err)
	}
	comparePython(t, root.Command(root.Env(t, 1, 1<<30), script))
}

// viewerCommand runs the code behind pytorch.org/memory_viz, or skips the test where it is missing.
func viewerCommand(t *testing.T) *exec.Cmd {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("skipped: no node (Debian: nodejs)")
	}
	out, err := exec.Command("testdata/memory-viz.sh", "--offline").Output()
	if err != nil {
		t.Fatal(err)
	}
	viewer := strings.TrimSpace(string(out))
	if strings.HasPrefix(viewer, "skipped: ") {
		t.Skip(viewer)
	}
	return exec.Command(node, "testdata/viewer.mjs", viewer)
}

// viewerAnswer is what the viewer shows of a device at the end.
type viewerAnswer struct{ Reserved, Allocated, Peak, Events int64 }

func TestTheViewersOwnCodeReadsSnapshots(t *testing.T) {
	viewer := viewerCommand(t)
	files, views := samples(t)
	for i, got := range answers[[]viewerAnswer](t, viewer, files) {
		v := views[i]
		if len(got) != len(v.traces) {
			t.Fatalf("file %d: %d devices, not %d", i, len(got), len(v.traces))
		}
		for device, a := range got {
			var reserved, active int64
			for _, s := range v.segments {
				if s.device == int64(device) {
					reserved += s.size
					for _, b := range s.blocks {
						if b.active {
							active += b.size
						}
					}
				}
			}
			if a.Reserved != reserved || a.Allocated != active {
				t.Errorf("file %d: the viewer has %+v on device %d, written were %d and %d bytes", i, a, device, reserved, active)
			}
			if a.Peak < active && a.Events > 0 {
				t.Errorf("file %d: the timeline's peak is %d on device %d, at the end there are %d", i, a.Peak, device, active)
			}
		}
	}
}
