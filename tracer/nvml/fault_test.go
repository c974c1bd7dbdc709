// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

const faultsVariable = "FAKECUDA_NVML_FAULTS"

// faultsFile creates the file that lists the faults of the fake NVML.
func faultsFile(t *testing.T, words string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "faults")
	if err := os.WriteFile(path, []byte(words), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestInitErrorsHaveRemedies covers each reason for which the library fails to initialize.
func TestInitErrorsHaveRemedies(t *testing.T) {
	cuda := fakecuda.Build(t)
	for word, want := range map[string][]string{
		"unloaded":  {"nvmlInit: the NVIDIA driver is not loaded (load the driver: modprobe nvidia;"},
		"mismatch":  {"nvmlInit: library and kernel driver differ in version (the driver was updated while it was loaded: reboot"},
		"forbidden": {"nvmlInit: no permission (let this user open /dev/nvidiactl, or run as root;", "pass the GPUs"},
		"no-gpu":    {"nvmlInit: not found (no GPU that the driver supports was found: lspci -d 10de:"},
	} {
		s := lookAt(t, cuda.Lib("libnvidia-ml.so.1"), append(cuda.Env(t, 1, 1<<30), faultsVariable+"="+faultsFile(t, word))...)
		for _, text := range append(want, ErrUnavailable.Error()+": ") {
			if !strings.Contains(s.Open, text) {
				t.Errorf("%s: %q lacks %q", word, s.Open, text)
			}
		}
	}
}

// TestImplausibleAnswersAreErrors checks that an implausible figure costs only that figure.
func TestImplausibleAnswersAreErrors(t *testing.T) {
	const claim = "the driver claims "
	cuda := fakecuda.Build(t)
	env := cuda.Env(t, 2, 8<<30)
	p := exec.Command(cuda.Program("alloc_c"))
	p.Env, p.Stdin = env, strings.NewReader("malloc a 1000\nready\nwait\n")
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { p.Process.Kill(); p.Wait() }()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		words            string
		gpus, usage      int
		unavailable      uint64
		gpuErr, usageErr string
	}{
		{"", 2, 1, 0, "", ""},
		{"many", 0, 0, 0, claim + "4294967280 GPUs", claim + "4294967280 GPUs"},
		{"counts", 2, 0, 0, "", "nvmlDeviceGetComputeRunningProcesses: " + claim + "4294967280 processes"},
		{"insatiable", 2, 0, 0, "", "nvmlDeviceGetComputeRunningProcesses: " + claim + "4294967280 processes"},
		{"pids", 2, 0, 0, "", ""},
		{"sizes", 2, 0, 1, claim + "18446744073709551615 of 18446744073709551615 bytes", ""},
		{"strings", 0, 0, 0, "nvmlDeviceGetUUID: ", "nvmlDeviceGetUUID: "},
		{"lost", 0, 0, 0, "the GPU has fallen off the bus", "the GPU has fallen off the bus"},
		{"one", 1, 1, 0, "", ""},
	} {
		s := lookAt(t, cuda.Lib("libnvidia-ml.so.1"), append(env, faultsVariable+"="+faultsFile(t, c.words))...)
		if s.Open != "" || len(s.GPUs) != c.gpus || len(s.Usage) != c.usage || s.Unavailable != c.unavailable {
			t.Errorf("%q: got %+v, want %+v", c.words, s, c)
		}
		for _, err := range [][2]string{{s.GPUsError, c.gpuErr}, {s.UsageError, c.usageErr}} {
			if !strings.Contains(err[0], err[1]) || (err[0] == "") != (err[1] == "") {
				t.Errorf("%q: the error is %q, want %q", c.words, err[0], err[1])
			}
		}
		for _, text := range []string{s.Version, s.GPUsError, s.UsageError} {
			if strings.Contains(text, "\x1b") || !utf8.ValidString(text) {
				t.Errorf("%q: %q has control characters", c.words, text)
			}
		}
		for _, gpu := range s.GPUs {
			if c.words == "sizes" && (gpu.Total != 0 || gpu.Used != 0) {
				t.Errorf("a GPU has %d of %d bytes", gpu.Used, gpu.Total)
			}
		}
	}
}

// inChild runs a test again in a child process: a process can load only one library.
func inChild(t *testing.T, faults string) (child bool) {
	if os.Getenv(faultsVariable) != "" {
		return true
	}
	cuda := fakecuda.Build(t)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(cuda.Env(t, 2, 8<<30), faultsVariable+"="+faultsFile(t, faults), "VRAMPROF_TEST_FAKE="+cuda.Lib("libnvidia-ml.so.1"))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

func setFaults(t *testing.T, words string) {
	t.Helper()
	if err := os.WriteFile(os.Getenv(faultsVariable), []byte(words), 0o644); err != nil {
		t.Fatal(err)
	}
}

// briefly returns a context for a call that never returns.
func briefly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestReloadedDriverIsUsedAgain(t *testing.T) {
	if !inChild(t, "") {
		return
	}
	d, err := Open(t.Context(), os.Getenv("VRAMPROF_TEST_FAKE"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if gpus, err := d.GPUs(t.Context()); len(gpus) != 2 || err != nil {
			t.Fatalf("got %v, %v", gpus, err)
		}
		setFaults(t, "unloaded")
		for range 3 {
			if gpus, err := d.GPUs(t.Context()); len(gpus) != 0 || err == nil || !strings.Contains(err.Error(), "the NVIDIA driver is not loaded") {
				t.Errorf("while it is not loaded: %v, %v", gpus, err)
			}
		}
		if _, err := d.Usage(t.Context()); err == nil {
			t.Error("Usage succeeds while the driver is not loaded")
		}
		setFaults(t, "")
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func threads(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestHangingDriverBlocksOneThread(t *testing.T) {
	if !inChild(t, "") {
		return
	}
	d, err := Open(t.Context(), os.Getenv("VRAMPROF_TEST_FAKE"))
	if err != nil {
		t.Fatal(err)
	}
	setFaults(t, "hang")
	if _, err := d.GPUs(briefly(t)); !errors.Is(err, ErrBusy) {
		t.Fatalf("got %v", err)
	}
	goroutines, before := runtime.NumGoroutine(), threads(t)
	for range 500 {
		if _, err := d.Usage(t.Context()); !errors.Is(err, ErrBusy) {
			t.Fatalf("got %v", err)
		}
	}
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("%d goroutines, then %d", goroutines, now)
	}
	if now := threads(t); now > before+2 { // the runtime adds its own
		t.Errorf("%d threads, then %d", before, now)
	}
	setFaults(t, "")
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if gpus, err := d.GPUs(t.Context()); err == nil && len(gpus) == 2 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("no answer after the hang: %v, %v", gpus, err)
		}
	}
	setFaults(t, "hang-end")
	if err := d.Close(briefly(t)); !errors.Is(err, ErrBusy) {
		t.Errorf("Close during a hang: %v", err)
	}
}

func TestDriverHangingInInitIsUnavailable(t *testing.T) {
	if !inChild(t, "hang-init") {
		return
	}
	if _, err := Open(briefly(t), os.Getenv("VRAMPROF_TEST_FAKE")); !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrBusy) {
		t.Errorf("got %v", err)
	}
}
