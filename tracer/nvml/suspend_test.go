// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// logVariable names the file that the fake NVML keeps open while it is initialized.
const logVariable = "FAKECUDA_NVML_LOG"

// TestSuspendedDriverIsNotHeldAndItsSuccessorIsUsed replaces the driver's library while it is
// suspended, as an upgrade does.
func TestSuspendedDriverIsNotHeldAndItsSuccessorIsUsed(t *testing.T) {
	if !inChild(t, "") {
		return
	}
	log := filepath.Join(t.TempDir(), "log")
	os.Setenv(logVariable, log) // by setenv(3) too, as the library reads it
	library := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	install := func() {
		t.Helper()
		data, err := os.ReadFile(os.Getenv("VRAMPROF_TEST_FAKE"))
		if err == nil {
			err = os.WriteFile(library+".new", data, 0o755)
		}
		if err == nil {
			err = os.Rename(library+".new", library)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install()
	d, err := Open(t.Context(), library)
	if err != nil {
		t.Fatal(err)
	}
	use := func() {
		t.Helper()
		if gpus, err := d.GPUs(t.Context()); err != nil || len(gpus) != 2 {
			t.Fatalf("GPUs: %v, %v", gpus, err)
		}
		if _, err := d.Usage(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !mapsFile(t, library) || !hasOpen(t, log) {
			t.Error("a driver in use is not mapped or not open")
		}
	}
	use()
	for range 3 {
		for range 2 { // the second one does nothing
			if err := d.Suspend(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if mapsFile(t, library) || hasOpen(t, log) {
			t.Error("a suspended driver is mapped or open")
		}
		install()
		use()
		if mapsFile(t, library+" (deleted)") {
			t.Error("the library before is still mapped")
		}
	}
	if err := d.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	setFaults(t, "mismatch")
	if _, err := d.GPUs(t.Context()); err == nil || !strings.Contains(err.Error(), "library and kernel driver differ in version") {
		t.Errorf("with a library of another version: %v", err)
	}
	if mapsFile(t, library) {
		t.Error("a library that cannot be used stays mapped")
	}
	setFaults(t, "")
	use()
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	calls, _ := os.ReadFile(log)
	if want := strings.Repeat("init\nshutdown\n", 5); string(calls) != want {
		t.Errorf("NVML was called %q, want %q", calls, want)
	}
}

// mapsFile reports whether this process maps a file.
func mapsFile(t *testing.T, path string) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), " "+path) {
			return true
		}
	}
	return false
}

// hasOpen reports whether this process has a file open.
func hasOpen(t *testing.T, path string) bool {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range list {
		if file, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && file == path {
			return true
		}
	}
	return false
}

func TestEveryFunctionThatIsCalledThroughGoNVMLIsBound(t *testing.T) {
	defer func() {
		for name := range versions {
			bind(name, nil)
		}
	}()
	for name := range versions {
		own := strings.HasSuffix(name, "RunningProcesses") || name == "nvmlInit" || name == "nvmlShutdown" // called here
		if bind(name, nil) == own {
			t.Errorf("%s: bound is %v", name, !own)
		}
	}
}
