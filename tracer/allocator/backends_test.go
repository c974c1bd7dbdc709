// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// stripped is a process whose libraries cannot be opened: their symbols are not known.
type stripped struct{ *peek.Process }

func (stripped) File(peek.Region) (*os.File, error) { return nil, errors.New("no file") }

// atPoints runs a job of testdata/realtorch and calls see whenever it waits.
func atPoints(t testing.TB, env []string, script string, args []string, see func(p *peek.Process)) {
	t.Helper()
	root := realtorch.Prepare(t)
	cmd := root.Command(append(root.Env(t, 2, 8<<30), env...), script, args...)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	seen := 0
	for points := bufio.NewScanner(out); points.Scan(); {
		if points.Text() != "point" {
			continue
		}
		seen++
		p, err := peek.Open(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		see(p)
		p.Close()
		io.WriteString(in, "\n")
	}
	if seen == 0 {
		t.Error("the job stopped nowhere")
	}
}

func TestOtherBackendsOfRealPyTorch(t *testing.T) {
	library := filepath.Join(t.TempDir(), "pluggable.so")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, "testdata/pluggable.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		backend Backend
		env     string
		args    []string
	}{
		{Async, "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync", nil},
		{Pluggable, "", []string{library}},
	} {
		t.Run(c.backend.String(), func(t *testing.T) {
			folder := t.TempDir()
			points := 0
			atPoints(t, []string{c.env}, "backends.py", append([]string{folder, "700"}, c.args...), func(p *peek.Process) {
				text, err := os.ReadFile(filepath.Join(folder, "truth.json"))
				if err != nil {
					t.Fatal(err)
				}
				var want [][4]uint64
				if err := json.Unmarshal(text, &want); err != nil {
					t.Fatal(err)
				}
				points++
				for name, m := range map[string]Memory{"by symbol": p, "by type information": stripped{p}} {
					compareList(t, fmt.Sprint(name, ", point ", points), m, c.backend, want)
				}
			})
			if points != 2 {
				t.Errorf("%d points, want 2", points)
			}
		})
	}
}

func compareList(t *testing.T, name string, m Memory, backend Backend, want [][4]uint64) {
	t.Helper()
	a := New(m, nil)
	s, err := a.Walk(1)
	if len(want) == 0 && backend == Async { // an empty table proves nothing
		if e := (*Error)(nil); !errors.As(err, &e) || e.Code != NoBlocks {
			t.Errorf("%s: an empty table: %v", name, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	got := make([][4]uint64, 0, len(s.Blocks))
	for _, b := range s.Blocks {
		if b.State != Active || b.Segment != -1 || b.Requested != b.Size {
			t.Errorf("%s: %+v", name, b)
		}
		got = append(got, [4]uint64{b.Address, b.Size, uint64(b.Device), b.Stream})
	}
	slices.SortFunc(want, func(a, b [4]uint64) int { return slices.Compare(a[:], b[:]) })
	if s.Superset { // freed ones as well
		got = slices.DeleteFunc(got, func(b [4]uint64) bool {
			_, found := slices.BinarySearchFunc(want, b, func(a, b [4]uint64) int { return slices.Compare(a[:], b[:]) })
			return !found
		})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %d blocks, want %d\nfirst read %v\nwant %v", name, len(got), len(want), got[:min(3, len(got))], want[:min(3, len(want))])
	}
	if s.Backend != backend || s.Superset != (backend == Pluggable) || s.Exact() == s.Superset || len(s.Segments) != 0 {
		t.Errorf("%s: %v, %d segments, devices %+v", name, s.Backend, len(s.Segments), s.Devices)
	}
	if _, err := a.Counters(); err == nil {
		t.Errorf("%s: counters of a backend that has none", name)
	}
}

func TestTheNativeBackendIsKnownWithoutSymbols(t *testing.T) {
	folder := t.TempDir()
	atPoints(t, nil, "blocks.py", []string{folder, "1"}, func(p *peek.Process) {
		for name, m := range map[string]Memory{"by symbol": p, "by type information": stripped{p}} {
			a := New(m, nil)
			s, err := a.Walk(1)
			if err != nil || s.Backend != Native || a.found.variable == 0 || a.found.class != "" {
				t.Errorf("%s: %v, found %+v", name, err, a.found)
			}
		}
	})
}

func TestWithoutCachingNoBlocksAreFound(t *testing.T) {
	folder := t.TempDir()
	atPoints(t, []string{"PYTORCH_NO_CUDA_MEMORY_CACHING=1"}, "backends.py", []string{folder, "50"}, func(p *peek.Process) {
		_, _, err := readOnce(p, nil)
		if e := (*Error)(nil); !errors.As(err, &e) || e.Code != NoBlocks {
			t.Errorf("got %v", err)
		}
	})
}
