// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/nvml"
)

// eight is a machine whose device nodes are numbered from its last GPU on.
type eight struct{ NVML }

func eightGPUs() (gpus []ledger.GPU) {
	for i := range 8 {
		gpus = append(gpus, ledger.GPU{Index: i, UUID: fmt.Sprint("GPU-", i), Name: "A"})
	}
	return gpus
}

func (eight) Ordinals(environ []string, gpus []ledger.GPU) []string {
	return nvml.Ordinals(environ, gpus)
}

func (eight) OfMinors(minors []uint32, gpus []ledger.GPU) (list []ledger.GPU, all bool) {
	for _, g := range gpus {
		if slices.Contains(minors, uint32(7-g.Index)) {
			list = append(list, g)
		}
	}
	return list, len(list) == len(minors)
}

func TestOrdinalsAreThoseOfWhatAProcessHasOpen(t *testing.T) {
	const all = "0 1 2 3 4 5 6 7"
	for _, c := range []struct {
		name        string
		contained   bool
		open, nodes string // GPUs
		environ     string
		want        string
	}{
		{"on the host", false, all, "", "", all},
		{"before CUDA starts", false, "", "", "CUDA_VISIBLE_DEVICES=2,0", "2 0"},
		{"on the host, by number", false, all, "", "CUDA_VISIBLE_DEVICES=2,0", "2 0"},
		{"where CUDA opens only what is visible", false, "0 3", "", "CUDA_VISIBLE_DEVICES=3,0", "3 0"},
		{"by UUID", false, "4 5", "", "CUDA_VISIBLE_DEVICES=GPU-5", "5"},
		{"renumbered by Slurm", false, "4 5", "", "CUDA_VISIBLE_DEVICES=0,1", "4 5"},
		{"one of those that Slurm gives", false, "4 5", "", "CUDA_VISIBLE_DEVICES=1", "5"},
		{"constrained, and not told", false, "6 7", "", "", "6 7"},
		{"one too many is told", false, "4 5", "", "CUDA_VISIBLE_DEVICES=0,9", "4"},
		{"in a container", true, "4 5", "4 5", "NVIDIA_VISIBLE_DEVICES=4,5", "4 5"},
		{"in a container before CUDA starts", true, "", "4 5", "NVIDIA_VISIBLE_DEVICES=void", "4 5"},
		{"under CDI", true, "4 5 6 7", "4 5 6 7", "NVIDIA_VISIBLE_DEVICES=void CUDA_VISIBLE_DEVICES=3,0", "7 4"},
		{"under a plugin, all in the image", true, "4 5 6 7", "4 5 6 7", "NVIDIA_VISIBLE_DEVICES=all", "4 5 6 7"},
		{"without a variable", true, "0 1", "0 1", "", "0 1"},
		{"with nothing to tell", true, "", "", "NVIDIA_VISIBLE_DEVICES=void", ""},
		{"told by the toolkit only", true, "", "", "NVIDIA_VISIBLE_DEVICES=6,7", "6 7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := process{contained: c.contained, open: minorsOf(c.open), nodes: minorsOf(c.nodes), environ: strings.Fields(c.environ)}
			got := strings.ReplaceAll(strings.Join(p.ordinals(eightGPUs(), eight{}), " "), "GPU-", "")
			if got != c.want {
				t.Errorf("ordinals are GPUs %q, want %q", got, c.want)
			}
		})
	}
	stranger := process{open: []uint32{0, 9}}
	if got := stranger.ordinals(eightGPUs(), eight{}); got != nil {
		t.Errorf("with a GPU that NVML does not list: %q", got)
	}
}

func minorsOf(gpus string) (list []uint32) {
	for _, word := range strings.Fields(gpus) {
		n, _ := strconv.Atoi(word)
		list = append(list, uint32(7-n))
	}
	return list
}

func TestAProcessWithOneGPUIsKnownWithoutNVML(t *testing.T) {
	for _, c := range []struct {
		p    process
		want bool
	}{
		{process{open: []uint32{3}}, true},
		{process{nodes: []uint32{3}}, true},
		{process{open: []uint32{2, 3}, nodes: []uint32{3}}, false},
		{process{open: []uint32{2, 3}, environ: []string{"CUDA_VISIBLE_DEVICES=1"}}, true},
		{process{environ: []string{"CUDA_VISIBLE_DEVICES=1,2"}}, false},
		{process{environ: []string{"CUDA_VISIBLE_DEVICES="}}, false},
		{process{}, false},
	} {
		if got := c.p.seesOne(); got != c.want {
			t.Errorf("%+v sees one: %v", c.p, got)
		}
	}
}

// containerGroup makes a control group that is named as a container's; "" where that cannot be done.
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

// Environments say nothing of the GPUs of a container, or something wrong: what a process has open says it, and without
// that, nothing adds up to more than NVML's figures, which every snapshot of these tests is tested for.
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
