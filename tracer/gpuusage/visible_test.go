// SPDX-License-Identifier: Apache-2.0

package gpuusage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

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

func (eight) ResolveOrdinals(environ []string, gpus []ledger.GPU) []string {
	return nvml.ResolveOrdinals(environ, gpus)
}

func (eight) GPUsByMinor(minors []uint32, gpus []ledger.GPU) (list []ledger.GPU, all bool) {
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
			p := View{contained: c.contained, open: minorsOf(c.open), nodes: minorsOf(c.nodes), environ: strings.Fields(c.environ)}
			got := strings.ReplaceAll(strings.Join(p.Ordinals(eightGPUs(), eight{}), " "), "GPU-", "")
			if got != c.want {
				t.Errorf("ordinals are GPUs %q, want %q", got, c.want)
			}
		})
	}
	stranger := View{open: []uint32{0, 9}}
	if got := stranger.Ordinals(eightGPUs(), eight{}); got != nil {
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
		p    View
		want bool
	}{
		{View{open: []uint32{3}}, true},
		{View{nodes: []uint32{3}}, true},
		{View{open: []uint32{2, 3}, nodes: []uint32{3}}, false},
		{View{open: []uint32{2, 3}, environ: []string{"CUDA_VISIBLE_DEVICES=1"}}, true},
		{View{environ: []string{"CUDA_VISIBLE_DEVICES=1,2"}}, false},
		{View{environ: []string{"CUDA_VISIBLE_DEVICES="}}, false},
		{View{}, false},
	} {
		if got := c.p.seesOne(); got != c.want {
			t.Errorf("%+v sees one: %v", c.p, got)
		}
	}
}
