// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

var versions = []int{113, 200, 210, 260, 300, 301}

// startShape starts a process with the structures of a version, and returns each block it has.
func startShape(t testing.TB, version, segments int) (*peek.Process, []string) {
	t.Helper()
	return startDivided(t, version, segments, 30)
}

// startDivided is startShape with at most some blocks in a segment.
func startDivided(t testing.TB, version, segments, most int) (*peek.Process, []string) {
	t.Helper()
	cmd, told := runShape(t, version, segments, most)
	return openProcess(t, cmd.Process.Pid), told
}

// startEnding is startShape, and returns a function that ends the process.
func startEnding(t testing.TB) (p *peek.Process, end func()) {
	t.Helper()
	cmd, _ := runShape(t, 260, 20, 30)
	return openProcess(t, cmd.Process.Pid), func() { cmd.Process.Kill(); cmd.Wait() }
}

func openProcess(t testing.TB, pid int) *peek.Process {
	t.Helper()
	p, err := peek.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// shapes has the folders of the programs that were built, by version.
var shapes struct {
	sync.Mutex
	dirs map[int]string
	root string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shapes.root != "" {
		os.RemoveAll(shapes.root)
	}
	os.Exit(code)
}

// buildShape builds the program of a version once, as DIR/shape.
func buildShape(t testing.TB, version int) (dir string) {
	t.Helper()
	shapes.Lock()
	defer shapes.Unlock()
	if dir := shapes.dirs[version]; dir != "" {
		return dir
	}
	build := func(args ...string) {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	if shapes.root == "" {
		root, err := os.MkdirTemp("", "shapes")
		if err != nil {
			t.Fatal(err)
		}
		shapes.root, shapes.dirs = root, map[int]string{}
	}
	dir = filepath.Join(shapes.root, fmt.Sprint(version))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	library, program := filepath.Join(dir, "libc10_cuda.so"), filepath.Join(dir, "shape")
	build("g++", "-std=c++17", "-O0", "-shared", "-fPIC", "-Wl,--build-id", fmt.Sprintf("-DVERSION=%d", version), "-o", library, "testdata/shapes.cpp")
	build("gcc", "-o", program, "testdata/main.c", library, "-Wl,-rpath,"+dir)
	shapes.dirs[version] = dir
	return dir
}

// runShape starts the program of a version, and returns its output up to the end of its list.
func runShape(t testing.TB, version, segments, most int) (cmd *exec.Cmd, told []string) {
	t.Helper()
	cmd = exec.Command(filepath.Join(buildShape(t, version), "shape"), fmt.Sprint(segments), fmt.Sprint(most))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "end" {
		told = append(told, lines.Text())
	}
	return cmd, told
}

// lines writes the blocks of a snapshot as shapes.cpp prints them.
func lines(s *Snapshot) (all []string) {
	for _, b := range s.Blocks {
		small := 0
		if b.Small {
			small = 1
		}
		all = append(all, fmt.Sprintf("%d %d %d %d %d %d %d %s", b.Address, b.Size, b.Requested, b.Stream, b.Pool[1], b.Device, small, b.State))
	}
	return all
}

func TestShapesOfVersions(t *testing.T) {
	for _, version := range versions {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			p, told := startShape(t, version, 100)
			s, layout, err := readOnce(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !s.Exact() {
				t.Errorf("not exact: %+v", s.Devices)
			}
			if got := lines(s); !slices.Equal(got, told) {
				t.Errorf("%d blocks, want %d", len(got), len(told))
				for i := range min(len(got), len(told)) {
					if got[i] != told[i] {
						t.Fatalf("block %d: %s, want %s", i, got[i], told[i])
					}
				}
			}
			for _, d := range s.Devices {
				if d.Counters.Retries != 3 || d.Counters.OutOfMemory != 1 || d.Counters.Segments.Current != 100 {
					t.Errorf("counters: %+v", d.Counters)
				}
			}
			if len(s.Segments) != 200 {
				t.Errorf("%d segments, want 200", len(s.Segments))
			}
			if again, _, err := readOnce(p, layout); err != nil || !slices.Equal(lines(again), told) {
				t.Errorf("with the layout kept: %v", err)
			}
		})
	}
}

func TestWithoutProofNothingIsRead(t *testing.T) {
	p, _ := startShape(t, 260, 0)
	var e *Error
	if _, _, err := readOnce(p, nil); !errors.As(err, &e) || e.Code != NoBlocks {
		t.Errorf("an empty allocator: %v", err)
	}
}
