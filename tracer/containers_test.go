// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// containerGroup makes a control group that is named as a container's; "" where that cannot be
// done.
func containerGroup(t *testing.T) string {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"} {
		at := filepath.Join(root, fmt.Sprintf("docker-%064x.scope", os.Getpid()))
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil || os.Mkdir(at, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			for end := time.Now().Add(5 * time.Second); os.Remove(at) != nil && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
		})
		return at
	}
	return ""
}

// Environments say nothing of the GPUs of a container, or something wrong: what a process has open
// says it, and without that, nothing adds up to more than NVML's figures, which every snapshot of
// these tests is tested for.
func TestGPUsOfContainersAreThoseThatAreOpen(t *testing.T) {
	m := newMachine(t, 8, "FAKECUDA_MINORS=1")
	group := containerGroup(t)
	if group == "" {
		t.Skip("no control group can be made here")
	}
	m.trace(nil)
	script := []string{"cudaSetDevice 3", "cudaMalloc d 4000", "cudaSetDevice 1", "cudaMalloc b 64M", "cudaSetDevice 0", "cudaMalloc a 1000",
		"cudaSetDevice 2", "cudaMalloc c 3000", "ready", "wait"}
	for _, told := range []string{"NVIDIA_VISIBLE_DEVICES=void", "A=b", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=0,1,2,3", "CUDA_VISIBLE_DEVICES=0,1,2,3"} {
		for _, nodes := range []string{"1", "0"} {
			what := told + ", nodes " + nodes
			args := append([]string{"-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, group, m.program("calls_c")}, m.file(strings.Join(script, "\n")+"\n"))
			p := m.start([]string{told, "FAKECUDA_GIVEN=4,5,6,7", "FAKECUDA_NODES=" + nodes}, "sh", args...)
			p.ready()
			s := m.snapshot()
			usage := m.usage(p.pid())
			compareAccounts(t, what, booked(t, s, p.pid()), accountOf(&usage)) // without nodes they are paired
			x, _ := processOf(t, s, p.pid())
			if want := map[string]ledger.Ordinals{"1": ledger.OrdinalsTold, "0": ledger.OrdinalsPaired}[nodes]; x.Ordinals != want {
				t.Errorf("%s: devices are known by %d, want %d", what, x.Ordinals, want)
			}
			p.end()
		}
	}
}
