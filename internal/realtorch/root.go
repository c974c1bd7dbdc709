// SPDX-License-Identifier: Apache-2.0

// Package realtorch provides tests with a real PyTorch with CUDA on the simulated machines of
// package fakecuda. Its allocator, autograd and optimizers are real; only the kernels do nothing.
// scripts/real-torch.sh installs it; the jobs that run it are in testdata/realtorch.
package realtorch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

// Root is PyTorch with its Python, the CUDA libraries that it links to, and the fake driver. All
// tests share it: do not write to it.
type Root struct {
	python    string // its file
	dir, cuda string
	fake      fakecuda.Dir
}

// Prepare finds what scripts/real-torch.sh has unpacked, and builds the CUDA libraries if their
// sources have changed. It skips the test if PyTorch is not unpacked.
func Prepare(t testing.TB) Root {
	t.Helper()
	if fakecuda.OnGPU() {
		return Root{python: "python3"}
	}
	if testing.Short() {
		t.Skip("PyTorch takes seconds to start")
	}
	found, err := find()
	if err != nil {
		t.Fatal(err)
	}
	if found.skipped != "" {
		t.Skip(found.skipped)
	}
	cuda := found.cuda
	if fakecuda.OnNVIDIA() { // of the stubs only cuDNN, MPI and Redis are used
		cuda = fakecuda.Math(t) + ":" + cuda
	}
	return Root{filepath.Join(found.dir, "python3"), found.dir, cuda, fakecuda.Build(t)}
}

type prepared struct {
	dir, cuda, skipped string
}

var find = sync.OnceValues(func() (prepared, error) {
	repository, err := repository()
	if err != nil {
		return prepared{}, err
	}
	cache := os.Getenv("VRAMPROF_REALTORCH")
	if cache == "" {
		cache = filepath.Join(repository, ".cache", "realtorch")
	}
	os.ReadDir(cache) // makes go test's result cache depend on the folder
	cmd := exec.Command(filepath.Join(repository, "scripts", "real-torch.sh"), "--offline")
	cmd.Stderr = new(strings.Builder)
	out, err := cmd.Output()
	if err != nil {
		return prepared{}, fmt.Errorf("real-torch.sh: %w\n%s%s", err, out, cmd.Stderr)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if strings.HasPrefix(lines[0], "skipped: ") {
		return prepared{skipped: lines[0]}, nil
	}
	if len(lines) != 2 {
		return prepared{}, fmt.Errorf("real-torch.sh printed %q, want two folders", out)
	}
	return prepared{dir: lines[0], cuda: lines[1]}, nil
})

func repository() (string, error) {
	_, self, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(self) {
		return "", errors.New("no source path in the test binary (build without -trimpath)")
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(self))), nil
}

// Script returns the path of a job: "train.py", "oom.py", "attach.py", "machine.py".
func Script(name string) string {
	repository, err := repository()
	if err != nil {
		panic(err)
	}
	return filepath.Join(repository, "testdata", "realtorch", name)
}

// Site returns the position of the line that a job marks "# site: NAME", such as "train.py:42".
func Site(t testing.TB, script, name string) string {
	t.Helper()
	text, err := os.ReadFile(Script(script))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasSuffix(line, "  # site: "+name) {
			return fmt.Sprintf("%s:%d", script, i+1)
		}
	}
	t.Fatalf("%s has no site %q", script, name)
	return ""
}

// ExpandableSegments is the setting that makes PyTorch allocate with cuMemCreate.
const ExpandableSegments = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"

// Env returns the environment of a new simulated machine, as fakecuda.Dir.Env does; fakecuda.Usage
// reads its books. Append variables to change it.
func (r Root) Env(t testing.TB, gpus int, memory uint64) []string {
	t.Helper()
	if fakecuda.OnGPU() {
		return append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	}
	var env []string
	for _, v := range r.fake.Env(t, gpus, memory) {
		if !strings.HasPrefix(v, "PYTHON") && !strings.HasPrefix(v, "PYTORCH_") {
			env = append(env, v)
		}
	}
	return append(env,
		"LD_LIBRARY_PATH="+r.cuda+":"+string(r.fake),
		"PYTHONPATH="+Script("site"),
		"PYTHONDONTWRITEBYTECODE=1", // the folder is shared
		"PYTHONNOUSERSITE=1",
	)
}

// Command returns a command that runs a job, or other Python code, outside any chroot: its
// libraries have the same paths as for the caller.
func (r Root) Command(env []string, script string, args ...string) *exec.Cmd {
	if !filepath.IsAbs(script) {
		script = Script(script)
	}
	cmd := exec.Command(r.python, append([]string{script}, args...)...)
	cmd.Env = env
	return cmd
}

// Lib returns the path of one of PyTorch's libraries: "libc10.so.2.6".
func (r Root) Lib(t testing.TB, name string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(r.dir, "usr", "lib", "*-linux-gnu", name))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%d libraries named %s (%v), want one", len(paths), name, err)
	}
	return paths[0]
}
