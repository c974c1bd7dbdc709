// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// seen is what one process saw of a library: a process can load only one.
type seen struct {
	Open, GPUsError, UsageError string
	Version                     string
	GPUs                        []ledger.GPU
	Usage                       []ledger.Usage
	Unavailable                 uint64
}

func TestMain(m *testing.M) {
	if path := os.Getenv("VRAMPROF_TEST_NVML"); path != "" {
		if err := json.NewEncoder(os.Stdout).Encode(look(path)); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func look(path string) seen {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var s seen
	d, err := Open(ctx, path)
	if err != nil {
		s.Open = err.Error()
		return s
	}
	s.Version = d.Version()
	s.GPUs, err = d.GPUs(ctx)
	s.GPUsError = text(err)
	s.Usage, err = d.Usage(ctx)
	s.UsageError = text(err)
	s.Unavailable = d.Unavailable()
	if err := d.Close(ctx); err != nil && s.UsageError == "" {
		s.UsageError = "close: " + err.Error()
	}
	return s
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func lookAt(t *testing.T, library string, environ ...string) seen {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "VRAMPROF_TEST_NVML="+library), environ...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var s seen
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return s
}

func buildLibrary(t *testing.T, flags ...string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc")
	}
	out := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	args := append([]string{"-shared", "-fPIC", "-o", out, filepath.Join("testdata", "nvml.c")}, flags...)
	if msg, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, msg)
	}
	return out
}

func TestUsageJoinsTheListsOncePerPIDAndGPU(t *testing.T) {
	got := lookAt(t, buildLibrary(t))
	want := seen{
		Version: "550.1",
		GPUs: []ledger.GPU{
			{Index: 0, UUID: "GPU-0", Name: "Fake GPU", Total: 80 << 30, Used: 1 << 30},
			{Index: 1, UUID: "GPU-1", Name: "Fake GPU", Total: 80 << 30, Used: 1 << 30},
		},
		Usage: []ledger.Usage{
			{PID: 100, UUID: "GPU-0", Bytes: 300 << 20},
			{PID: 200, UUID: "GPU-0", Bytes: 1 << 40},
			{PID: 400, UUID: "GPU-0", Bytes: 30},
			{PID: 500, UUID: "GPU-0", Bytes: 7},
			{PID: 600, UUID: "GPU-0", Bytes: 5},
			{PID: 100, UUID: "GPU-1", Bytes: 1 << 20},
		},
		Unavailable: 1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestOldLibraryWithoutOptionalSymbols(t *testing.T) {
	got := lookAt(t, buildLibrary(t, "-DOLD"))
	want := seen{
		GPUs:  []ledger.GPU{{Index: 0, UUID: "GPU-0"}, {Index: 1, UUID: "GPU-1"}},
		Usage: []ledger.Usage{{PID: 100, UUID: "GPU-0", Bytes: 1 << 20}, {PID: 100, UUID: "GPU-1", Bytes: 1 << 20}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestOneLostGPUDoesNotSpoilTheOthers(t *testing.T) {
	got := lookAt(t, buildLibrary(t), "NVML_LOST=1")
	if len(got.GPUs) != 1 || len(got.Usage) != 5 {
		t.Errorf("got %+v", got)
	}
	for _, err := range []string{got.GPUsError, got.UsageError} {
		if want := "GPU 1: nvmlDeviceGetHandleByIndex: the GPU has fallen off the bus"; err != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}

func TestUnusableLibrariesAreUnavailableWithTheReason(t *testing.T) {
	for _, c := range []struct {
		library, environ, want string
	}{
		{buildLibrary(t), "NVML_NO_DRIVER=1", "the NVIDIA driver is not loaded"},
		{buildLibrary(t, "-DNO_UUID"), "A=B", "lacks nvmlDeviceGetUUID"},
	} {
		got := lookAt(t, c.library, c.environ)
		if !strings.HasPrefix(got.Open, ErrUnavailable.Error()) || !strings.Contains(got.Open, c.want) {
			t.Errorf("got %q, want %q", got.Open, c.want)
		}
	}
}

func TestHangingDriverDoesNotHangUs(t *testing.T) {
	begin := time.Now()
	got := lookAt(t, buildLibrary(t), "NVML_HANG=1")
	if !strings.HasPrefix(got.UsageError, ErrBusy.Error()) || len(got.GPUs) != 2 {
		t.Errorf("got %+v", got)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestFakeCUDAHasGPUs(t *testing.T) {
	script := filepath.Join("..", "..", "testdata", "fakecuda", "build.sh")
	if _, err := os.Stat(script); err != nil {
		t.Skip("no testdata/fakecuda")
	}
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip(err)
	}
	out := t.TempDir()
	if msg, err := exec.Command("bash", script, out).CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, msg)
	}
	got := lookAt(t, filepath.Join(out, "libnvidia-ml.so.1"))
	if len(got.GPUs) == 0 || got.GPUsError+got.UsageError+got.Open != "" {
		t.Errorf("got %+v", got)
	}
}
