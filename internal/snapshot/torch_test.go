// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/pickle"
	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// plain turns a value of a pickle into what JSON has of the same value.
func plain(v any) any {
	switch v := v.(type) {
	case pickle.Dict:
		m := map[string]any{}
		for k, x := range v {
			m[k] = plain(x)
		}
		return m
	case *pickle.List:
		list := []any{}
		for _, x := range v.Items {
			list = append(list, plain(x))
		}
		return list
	case int64:
		return float64(v)
	}
	return v
}

// withoutFrames removes what a snapshot from outside has of its own: holders, and the frames of
// them.
func withoutFrames(t *testing.T, segments any) (blocks, named int) {
	t.Helper()
	for _, x := range segments.([]any) {
		g := x.(map[string]any)
		delete(g, "frames")
		for _, x := range g["blocks"].([]any) {
			b := x.(map[string]any)
			frames, _ := b["frames"].([]any)
			if active := b["state"] == "active_allocated"; !active && len(frames) > 0 {
				t.Errorf("block %v has frames", b)
			}
			if _, is := b["holder"]; is {
				named++
			}
			delete(b, "frames")
			delete(b, "holder")
			blocks++
		}
	}
	return blocks, named
}

func walkOf(pid int) Walk {
	return func(blocks []holders.Range) (*holders.Result, error) {
		p, err := peek.Open(pid)
		if err != nil {
			return nil, err
		}
		defer p.Close()
		return holders.Walk(context.Background(), p, holders.Options{Addresses: blocks})
	}
}

func TestASnapshotFromOutsideIsPyTorchsOwn(t *testing.T) {
	root := realtorch.Prepare(t)
	for name, setting := range map[string]string{"segments": "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512", "expandable": realtorch.ExpandableSegments} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			cmd := root.Command(append(root.Env(t, 2, 8<<30), setting), "blocks.py", folder)
			in, _ := cmd.StdinPipe()
			out, _ := cmd.StdoutPipe()
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
			points, blocks := bufio.NewScanner(out), 0
			for points.Scan() {
				if points.Text() == "point" {
					blocks += comparePoint(t, cmd.Process.Pid, folder, strings.TrimPrefix(setting, "PYTORCH_CUDA_ALLOC_CONF="))
					io.WriteString(in, "\n")
				}
			}
			if blocks < 500 {
				t.Errorf("only %d blocks were compared", blocks)
			}
			readByPyTorch(t, root, filepath.Join(folder, "taken.pickle"))
		})
	}
}

func comparePoint(t *testing.T, pid int, folder, setting string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "truth.json"))
	if err != nil {
		t.Fatal(err)
	}
	var truth struct{ Segments any }
	if err := json.Unmarshal(text, &truth); err != nil {
		t.Fatal(err)
	}
	s, err := Take(uint32(pid), nil, walkOf(pid))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "taken.pickle"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := pickle.Read(&b, pickle.Options{Size: int64(b.Len())})
	if err != nil {
		t.Fatal(err)
	}
	taken := plain(v).(map[string]any)
	blocks, named := withoutFrames(t, taken["segments"])
	withoutFrames(t, truth.Segments)
	if !reflect.DeepEqual(taken["segments"], truth.Segments) {
		got, _ := json.MarshalIndent(taken["segments"], "", " ")
		want, _ := json.MarshalIndent(truth.Segments, "", " ")
		t.Errorf("read\n%.3000s\nwant\n%.3000s", got, want)
	}
	about := taken["vramprof"].(map[string]any)
	if about["exact"] != true || about["pid"] != float64(pid) {
		t.Errorf("about %v", about)
	}
	if got := taken["allocator_settings"].(map[string]any)["PYTORCH_CUDA_ALLOC_CONF"]; got != setting {
		t.Errorf("settings %q, want %q", got, setting)
	}
	if named == 0 {
		t.Error("no block has a holder")
	}
	var summary strings.Builder
	if err := s.Summary(&summary); err != nil || !strings.Contains(summary.String(), "\nexact: ") {
		t.Errorf("%v, summary:\n%s", err, summary.String())
	}
	t.Log(summary.String())
	return blocks
}

// readByPyTorch has all of torch/cuda/_memory_viz.py read a file.
func readByPyTorch(t *testing.T, root realtorch.Root, file string) {
	t.Helper()
	script, err := filepath.Abs("../../report/export/testdata/memory_viz.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := root.Command(root.Env(t, 1, 1<<30), script, file)
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, problem.String())
	}
	var sums struct{ Segments, Blocks, Active int64 }
	if err := json.Unmarshal(out, &sums); err != nil || sums.Segments == 0 || sums.Blocks != sums.Segments || sums.Active == 0 {
		t.Errorf("PyTorch reads %s (%v)", out, err)
	}
}

// TestATrainingJobIsReadExactlyOrWithABound: launch-bound, so that it rests only when vramprof has
// its processor.
func TestATrainingJobIsReadExactlyOrWithABound(t *testing.T) {
	root := realtorch.Prepare(t)
	cmd := root.Command(root.Env(t, 1, 8<<30), "train.py", "--seconds", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var last error
	read := 0
	for begin := time.Now(); read < 5 && time.Since(begin) < 50*time.Second; time.Sleep(time.Second) {
		s, err := Take(uint32(cmd.Process.Pid), nil, nil)
		if err != nil { // it starts, or nothing proves its layout yet
			last = err
			continue
		}
		var active uint64
		for _, b := range s.state.Blocks {
			if b.State == allocator.Active {
				active += b.Size
			}
		}
		if d := s.state.Devices[0]; active < d.Counters.Allocated.Current-min(d.OffBytes, d.Counters.Allocated.Current) || active > d.Counters.Allocated.Current+d.OffBytes {
			t.Errorf("%d bytes are active, the allocator counts %d, at most %d off", active, d.Counters.Allocated.Current, d.OffBytes)
		}
		if !s.state.Exact() && !strings.Contains(strings.Join(s.state.Warnings, "\n"), "in motion: ") {
			t.Errorf("warnings %q", s.state.Warnings)
		}
		t.Logf("exact: %v, %d bytes in %d blocks, read in %v", s.state.Exact(), active, len(s.state.Blocks), s.took)
		read++
	}
	if read == 0 {
		t.Errorf("never read: %v", last)
	}
}

func TestASnapshotOfTheAsyncAllocatorHasAllItsBlocks(t *testing.T) {
	root := realtorch.Prepare(t)
	folder := t.TempDir()
	cmd := root.Command(append(root.Env(t, 1, 8<<30), "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"), "backends.py", folder, "40")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	if points := bufio.NewScanner(out); !points.Scan() {
		t.Fatal("the job ended before its point")
	}
	text, err := os.ReadFile(filepath.Join(folder, "truth.json"))
	if err != nil {
		t.Fatal(err)
	}
	var live [][4]uint64
	if err := json.Unmarshal(text, &live); err != nil {
		t.Fatal(err)
	}
	s, err := Take(uint32(cmd.Process.Pid), nil, walkOf(cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var summary strings.Builder
	if err := s.Summary(&summary); err != nil || !strings.Contains(summary.String(), fmt.Sprintf("%d blocks of the cudaMallocAsync allocator", len(live))) || !s.state.Exact() {
		t.Errorf("%d tensors, %v:\n%s", len(live), err, summary.String())
	}
	file := filepath.Join(folder, "taken.pickle")
	var b bytes.Buffer
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	readByPyTorch(t, root, file)
}
