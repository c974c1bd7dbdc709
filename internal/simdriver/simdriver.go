// SPDX-License-Identifier: Apache-2.0

// Package simdriver provides tests with NVIDIA's own libcuda, libcudart and libnvidia-ml on a
// simulated kernel driver. scripts/real-driver.sh unpacks the libraries and builds the simulation;
// testdata/simdriver/README.md describes what it simulates.
//
// Each SIMDRIVER_BOOK file is one simulated machine: all processes with the same file share its
// GPUs.
package simdriver

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Dir is a folder with the libraries of one driver and the simulation. All tests share it: do not
// write to it.
type Dir string

// Drivers lists the driver branches that can be simulated, and Models the GPUs.
var (
	Drivers = []string{"550", "535"}
	Models  = []string{"t4", "a100", "h100"}
)

var found sync.Map // what real-driver.sh prints, by driver

// Build returns the folder of a driver ("535", or "--math" and "535": with cuBLAS and NCCL). It
// builds the simulation if its sources have changed, and skips the test if the driver is not
// unpacked.
func Build(t testing.TB, driver ...string) Dir {
	t.Helper()
	dir, err := Folder(driver...)
	if err != nil {
		t.Fatalf("real-driver.sh: %v", err)
	}
	if strings.HasPrefix(dir, "skipped:") {
		t.Skip(dir)
	}
	return Dir(dir)
}

// Folder returns what real-driver.sh prints of a driver: its folder, or "skipped: " and why there
// is none. It builds as Build does.
func Folder(driver ...string) (string, error) {
	find, _ := found.LoadOrStore(strings.Join(driver, " "), sync.OnceValues(func() (string, error) {
		cmd := exec.Command(filepath.Join(repository(), "scripts", "real-driver.sh"), append([]string{"--offline"}, driver...)...)
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LD_PRELOAD=") })
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}))
	return find.(func() (string, error))()
}

func repository() string {
	_, self, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(self)))
}

// Env returns the environment of a new simulated machine for every process of the test. The machine
// has gpus GPUs (at most 8) of a model, and is removed when the test ends. The test fails if a
// library asks for something that testdata/simdriver/unknown.txt does not list.
func (d Dir) Env(t testing.TB, model string, gpus int) []string {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "simdriver-test-")
	if err != nil {
		folder = t.TempDir()
	}
	unknown := filepath.Join(folder, "unknown")
	t.Cleanup(func() {
		for _, line := range newlyUnknown(t, unknown) {
			t.Errorf("the simulated driver has no answer to: %s", line)
		}
		os.RemoveAll(folder)
	})
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "SIMDRIVER_") && name != "CUDA_VISIBLE_DEVICES" && name != "LD_LIBRARY_PATH" && name != "LD_PRELOAD" {
			env = append(env, v)
		}
	}
	return append(env,
		"LD_LIBRARY_PATH="+string(d),
		"LD_PRELOAD="+filepath.Join(string(d), "libsimdriver.so"),
		bookVariable+filepath.Join(folder, "book"),
		"SIMDRIVER_UNKNOWN="+unknown,
		"SIMDRIVER_MODEL="+model,
		fmt.Sprintf("SIMDRIVER_GPUS=%d", gpus),
	)
}

const bookVariable = "SIMDRIVER_BOOK="

// newlyUnknown returns the lines of a file that the committed list lacks.
func newlyUnknown(t testing.TB, path string) (lines []string) {
	t.Helper()
	known, err := os.ReadFile(filepath.Join(repository(), "testdata", "simdriver", "unknown.txt"))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(path) // none: nothing was unknown
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !slices.Contains(strings.Split(string(known), "\n"), line) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// Held returns the bytes that a process holds on a GPU according to the book of a machine, which
// env names: see struct slot in books.c.
func Held(t testing.TB, env []string, pid, gpu int) uint64 {
	t.Helper()
	const slots, maxGPUs = 64, 8
	i := slices.IndexFunc(env, func(v string) bool { return strings.HasPrefix(v, bookVariable) })
	book, err := os.ReadFile(strings.TrimPrefix(env[i], bookVariable))
	if err != nil {
		t.Fatal(err)
	}
	for k := range slots {
		slot := book[k*8*(1+maxGPUs):]
		if int(binary.LittleEndian.Uint32(slot)) == pid {
			return binary.LittleEndian.Uint64(slot[8*(1+gpu):])
		}
	}
	return 0
}

// Program compiles a C program of the repository, such as "testdata/simdriver/program/checks.c" or
// "scripts/gpucheck/program/driver.c", and returns its path.
func Program(t testing.TB, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), ".c"))
	out, err := exec.Command("gcc", "-O2", "-g", "-o", path, filepath.Join(repository(), source), "-ldl").CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return path
}
