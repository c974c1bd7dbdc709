// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

// TestALibraryUnderSeveralMountsIsProbedOnce: containers see one library's file
// under paths of their own, bind mounts and overlays, in mount namespaces of their own.
func TestALibraryUnderSeveralMountsIsProbedOnce(t *testing.T) {
	fakecuda.OnlyFake(t, "it mounts the fake's folder")
	m := newMachine(t, 1)
	m.trace(nil)
	folder := string(m.fake)
	empty, seen := filepath.Join(m.folder, "empty"), 0
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	script := m.file("cudaMalloc a 1000\ncudaMalloc b 2000\ncudaFree a\ncuMemAlloc_v2 c 500\nready\nwait\n")
	for name, mount := range map[string]string{
		"bind mount":                     "mount --bind %[1]s %[2]s",
		"bind mounts of the files":       "for f in libcuda.so.1 libcudart.so.12; do touch %[2]s/$f; mount --bind %[1]s/$f %[2]s/$f; done",
		"overlay":                        "mount -t overlay overlay -o lowerdir=%[1]s:%[3]s %[2]s",
		"another overlay":                "mount -t overlay overlay -o lowerdir=%[3]s:%[1]s %[2]s",
		"overlay on another file system": "mount -t tmpfs tmpfs %[2]s; mkdir %[2]s/u %[2]s/w; mount -t overlay overlay -o lowerdir=%[1]s,upperdir=%[2]s/u,workdir=%[2]s/w %[2]s",
	} {
		t.Run(name, func(t *testing.T) {
			m := m.in(t)
			at := filepath.Join(m.folder, strings.ReplaceAll(name, " ", "-"))
			if err := os.Mkdir(at, 0o755); err != nil {
				t.Fatal(err)
			}
			mount := "set -e; " + fmt.Sprintf(mount, folder, at, empty)
			if out, err := exec.Command("unshare", "-m", "bash", "-c", mount).CombinedOutput(); err != nil {
				t.Skipf("%v: %s", err, out)
			}
			p := m.start(nil, "unshare", "-m", "bash", "-c", mount+"; LD_LIBRARY_PATH="+at+" exec "+m.program("calls_c")+" "+script)
			p.ready()
			seen++
			maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.pid()))
			if err != nil || !strings.Contains(string(maps), at+"/libcuda.so") {
				t.Fatalf("the driver is not mapped under %s: %v", at, err)
			}
			m.checkDevices(name, p, nil)
			if got := describeProcess(m.snapshot(), p.pid(), ""); len(got) != 2 || got[0] != "cuda:0 device cuMemAlloc_v2 live 1/500 of 1/500" || got[1] != "cuda:0 device cudaMalloc live 1/2000 of 2/3000" {
				t.Errorf("the books are %q", got)
			}
			p.end()
		})
	}
	m.lastly()
	if seen == 0 {
		t.Skip("nothing can be mounted here")
	}
	probed := 0
	for _, names := range m.discovery.files.Functions() {
		if slices.Contains(names, "cuInit") {
			probed++
		}
	}
	if probed != 1 {
		t.Errorf("the driver's library was probed %d times", probed)
	}
}
