// SPDX-License-Identifier: Apache-2.0

package gpuusage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procenv"
)

// givenGPUs is the variable by which a container gets its GPUs (NVIDIA Container Toolkit). An image
// may have kept it from where it was built, and CDI, Kubernetes' plugins and Slurm give GPUs
// without it.
const givenGPUs = "NVIDIA_VISIBLE_DEVICES"

// visibleGPUs picks among the GPUs that CUDA numbers.
const visibleGPUs = "CUDA_VISIBLE_DEVICES"

// View is what tells the GPUs that a process sees, as of when it was looked at.
type View struct {
	environ   []string // the variables of CUDA and of containers' GPUs
	contained bool     // in a container
	open      []uint32 // minor numbers of the GPUs that it has open
	nodes     []uint32 // and of those that its /dev has
}

// Look looks at a process with this environment, which may take 1 s if the process stalls its
// readers: only the worker calls it.
func Look(pid uint32, variables []string, contained bool) View {
	return View{
		environ: slices.DeleteFunc(variables, func(v string) bool {
			return !strings.HasPrefix(v, "CUDA_") && !strings.HasPrefix(v, givenGPUs+"=")
		}),
		contained: contained, open: OpenGPUs(pid), nodes: nodesBelow(pid),
	}
}

// Ordinals returns the UUID of each CUDA ordinal of the process, nil if nothing tells them. CUDA
// numbers the GPUs that it can open, and CUDA_VISIBLE_DEVICES picks among them. The process has
// open at least what it picked: of the lists that it could have chosen from, the first that agrees
// with that is taken.
func (v *View) Ordinals(gpus []ledger.GPU, driver NVML) []string {
	opened, known := driver.GPUsByMinor(v.open, gpus)
	if !known {
		return nil // it uses GPUs that NVML does not list, among which ours have other numbers
	}
	var best []string
	for _, base := range v.bases(gpus, opened, driver) {
		uuids := driver.ResolveOrdinals(v.environ, base)
		if len(opened) == 0 || v.picksAll(uuids) && among(uuids, opened) {
			return uuids
		}
		if len(best) == 0 {
			best = uuids
		}
	}
	return best
}

// bases lists the GPUs that the process can have chosen from, best evidence first.
func (v *View) bases(gpus, opened []ledger.GPU, driver NVML) (list [][]ledger.GPU) {
	instances := slices.ContainsFunc(gpus, func(g ledger.GPU) bool { return g.Parent != "" })
	add := func(base []ledger.GPU) {
		if v.contained && instances { // the node of a GPU does not show which of its instances were given
			base = both(base, given(v.environ, gpus))
		}
		if len(base) > 0 {
			list = append(list, renumbered(base))
		}
	}
	add(opened)
	if !v.contained {
		return append(list, gpus)
	}
	if nodes, known := driver.GPUsByMinor(v.nodes, gpus); known {
		add(nodes)
	}
	add(given(v.environ, gpus))
	return list
}

// picksAll reports whether no entry of CUDA_VISIBLE_DEVICES was invalid, as most that are set are.
func (v *View) picksAll(uuids []string) bool {
	list, set := procenv.Lookup(v.environ, visibleGPUs)
	instance := len(uuids) == 1 && strings.HasPrefix(uuids[0], "MIG-") // there is one, whatever was picked
	return !set || instance || len(uuids) == strings.Count(list, ",")+1
}

// among reports whether each ordinal that is known is one of the GPUs.
func among(uuids []string, gpus []ledger.GPU) bool {
	for _, uuid := range uuids {
		if uuid != "" && !slices.ContainsFunc(gpus, func(g ledger.GPU) bool { return g.UUID == uuid }) {
			return false
		}
	}
	return len(uuids) > 0
}

// both returns the GPUs that are in two lists.
func both(a, b []ledger.GPU) (list []ledger.GPU) {
	for _, gpu := range a {
		if slices.ContainsFunc(b, func(g ledger.GPU) bool { return g.UUID == gpu.UUID || g.UUID == gpu.Parent || g.Parent == gpu.UUID }) {
			list = append(list, gpu)
		}
	}
	return list
}

// seesOne reports whether the process can use one GPU only, where there is no NVML to name it.
func (v *View) seesOne() bool {
	if list, set := procenv.Lookup(v.environ, visibleGPUs); set && list != "" && !strings.Contains(list, ",") {
		return true
	}
	return len(v.open) == 1 || len(v.open) == 0 && len(v.nodes) == 1
}

// given returns the GPUs of a container with this environment: CUDA numbers only those. It returns
// nil if the environment does not tell them and there are several.
func given(variables []string, gpus []ledger.GPU) []ledger.GPU {
	if len(gpus) == 1 {
		return gpus
	}
	list, _ := procenv.Lookup(variables, givenGPUs)
	switch list {
	case "all":
		return gpus
	case "", "none", "void":
		return nil // it got them another way
	}
	named := strings.Split(list, ",")
	var some []ledger.GPU
	for _, gpu := range gpus {
		if slices.ContainsFunc(named, func(name string) bool {
			return name == gpu.UUID || gpu.Parent == "" && name == fmt.Sprint(gpu.Index) || gpu.Parent != "" && name == gpu.Parent
		}) {
			some = append(some, gpu)
		}
	}
	return some
}

// renumbered returns the GPUs numbered as if there were no others: so CUDA numbers those that a
// process can open.
func renumbered(gpus []ledger.GPU) []ledger.GPU {
	gpus = slices.Clone(gpus)
	next, index := 0, map[int]int{}
	for i := range gpus {
		n, known := index[gpus[i].Index]
		if !known {
			n = next
			index[gpus[i].Index] = n
			next++
		}
		gpus[i].Index = n
	}
	return gpus
}
