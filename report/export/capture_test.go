// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// replayed writes a session into a capture and opens it.
func replayed(t *testing.T, list []told) *capture.Reader {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "run.vram"))
	if err != nil {
		t.Fatal(err)
	}
	var now atomic.Uint64
	now.Store(begin)
	w, err := capture.NewWriter(file, capture.Options{Host: "gpu-box-1", Clock: now.Load, Wall: wall})
	if err != nil {
		t.Fatal(err)
	}
	w.SetStacks(testStacks())
	w.Tell(ledger.Begin{Time: begin})
	c := NewCollector(ledger.New(ledger.Options{Host: "gpu-box-1"}), CollectorOptions{})
	c.Tell(ledger.Begin{Time: begin})
	for _, x := range list {
		now.Store(x.time)
		x.tell(w)
		x.tell(c)
	}
	if err := w.End(snapshot(c, begin+10*second)); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := capture.Open(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// written plays a capture up to a time and writes the snapshot of that moment.
func written(t *testing.T, r *capture.Reader, at uint64) []byte {
	t.Helper()
	l := r.NewLedger()
	c := NewCollector(l, CollectorOptions{})
	if err := r.Play(at, c); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Torch(&b, c, r.SnapshotOf(l, at), r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestACaptureGivesTheSameSnapshotAsTheEventsItHas(t *testing.T) {
	list := training(false)
	r := replayed(t, list)
	for _, at := range []uint64{begin + 5*second, begin + 10*second} {
		got := view(t, written(t, r, at))
		want := view(t, torchFile(t, play(list, at, CollectorOptions{}), at))
		if err := got.replay(); err != nil {
			t.Error(err)
		}
		// Wall-clock times are those of the capture.
		strip := func(v *viewed) string {
			for _, trace := range v.traces {
				for _, e := range trace {
					e["time_us"] = int64(0)
				}
			}
			return v.text()
		}
		if got, want := strip(got), strip(want); got != want {
			t.Errorf("at %d s the capture gives\n%s\nthe events give\n%s", (at-begin)/second, got, want)
		}
		if again := written(t, r, at); !bytes.Equal(again, written(t, r, at)) {
			t.Error("the same capture gives other bytes")
		}
	}
}

// A real PyTorch trains with a stand-in for NCCL, under vramprof record; the snapshot has the
// memory of both.
func TestARecordedTrainingHasWhatPyTorchCannotSee(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: tracing needs root")
	}
	fakecuda.OnlyFake(t, "it compares with the bytes of a stand-in for NCCL")
	root := realtorch.Prepare(t)
	dir := t.TempDir()
	vramprof := os.Getenv("VRAMPROF")
	if vramprof == "" {
		vramprof = filepath.Join(dir, "vramprof")
		if out, err := exec.Command("go", "build", "-o", vramprof, "github.com/vramprof/vramprof/cmd/vramprof").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	env := append(root.Env(t, 1, 4<<30), "RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=0",
		"PATH="+os.Getenv("PATH"), "HOME="+dir)
	job := root.Command(env, "train.py", "--steps=30", "--layers=3", "--width=256", "--ddp")
	if out, err := exec.Command(vramprof, "check").CombinedOutput(); err != nil && strings.Contains(string(out), "FAIL") {
		t.Skipf("skipped: it cannot trace here:\n%s", out)
	}
	file := filepath.Join(dir, "run.vram")
	record := exec.Command(vramprof, append([]string{"record", "-o", file, "--"}, job.Args...)...)
	record.Env = env
	out, err := record.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	points := reservedPoints(string(out))
	r, err := capture.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// At some moment the snapshot has what PyTorch reports at one of its points; NCCL ends before
	// the end.
	l := r.NewLedger()
	c := NewCollector(l, CollectorOptions{})
	p := r.Player()
	agreed := 0
	var tallies [][3]int64
	for at := r.Begin(); at <= r.End(); at += second / 4 {
		if err := p.PlayTo(at, c); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := Torch(&b, c, r.SnapshotOf(l, at), r); err != nil {
			continue // nothing yet
		}
		v := view(t, b.Bytes())
		segments, nccl, blocks := tally(v)
		tallies = append(tallies, [3]int64{segments, nccl, blocks})
		if nccl == 12<<20 && blocks > 0 && slices.Contains(points, segments) {
			if err := v.replay(); err != nil {
				t.Fatal(err)
			}
			agreed++
			break
		}
	}
	if agreed == 0 {
		t.Errorf("no snapshot has NCCL's memory, blocks of the program, and one of the sizes that PyTorch had: %v, but segments, NCCL and blocks: %v\n%s", points, tallies, out)
	}
}

// tally sums PyTorch's segments and NCCL's, and counts blocks whose stack goes through main.
func tally(v *viewed) (segments, nccl, blocks int64) {
	for _, s := range v.segments {
		switch {
		case s.stream == streamMapped: // only NCCL uses the virtual memory API; its stack is complete only if its tables were loaded in time
			nccl += s.size
		case s.address < addressEnd:
			segments += s.size
			for _, b := range s.blocks {
				if b.active && slices.Contains(b.frames, "main") {
					blocks++
				}
			}
		}
	}
	return segments, nccl, blocks
}

// reservedPoints returns the bytes reserved at each point of a job's output.
func reservedPoints(out string) (list []int64) {
	for line := range strings.Lines(out) {
		var p realtorch.Point
		if json.Unmarshal([]byte(line), &p) == nil && len(p.Devices) > 0 {
			list = append(list, int64(p.Devices[0].Reserved))
		}
	}
	return list
}
