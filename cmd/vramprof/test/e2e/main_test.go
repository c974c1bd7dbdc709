// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

var (
	root      string // of the repository
	binaryDir string
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait, for the kernel to attach or for time to pass.
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "9")
	}
	_, self, _, _ := runtime.Caller(0)
	root = filepath.Join(filepath.Dir(self), "..", "..", "..", "..")
	var err error
	if binaryDir, err = os.MkdirTemp("", "vramprof-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(binaryDir)
	os.Exit(code)
}

// buildOnce builds the command that all tests run, unless the environment variable VRAMPROF names
// an existing binary.
var buildOnce = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("VRAMPROF"); path != "" {
		return path, nil
	}
	path := filepath.Join(binaryDir, "vramprof")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./cmd/vramprof")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_CFLAGS=-Wno-deprecated-declarations")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// setup prepares a test that traces: it checks for root and builds the command and the fake CUDA.
func setup(t *testing.T) fakecuda.Dir {
	t.Helper()
	dir := setupAlone(t)
	t.Parallel()
	return dir
}

// setupAlone is setup for a test that runs alone. While one tracer attaches or detaches, the kernel
// blocks all others.
func setupAlone(t *testing.T) fakecuda.Dir {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	dir := fakecuda.Build(t)
	binary(t)
	return dir
}

// onlyLong skips a test that takes much of the processors for long, and so slows down the others.
func onlyLong(t *testing.T) {
	t.Helper()
	if os.Getenv("VRAMPROF_LONG") == "" {
		t.Skip("run by scripts/test-long.sh")
	}
}

func binary(t *testing.T) string {
	t.Helper()
	path, err := buildOnce()
	if err != nil {
		t.Fatalf("build vramprof: %v", err)
	}
	return path
}
