// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/tracer/environ"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// givenGPUs is the variable by which a container gets its GPUs (NVIDIA Container Toolkit). Images may
// have it from where they were built, and CDI, Kubernetes' plugins and Slurm give GPUs without it.
const givenGPUs = "NVIDIA_VISIBLE_DEVICES"

// visibleGPUs picks among the GPUs that CUDA numbers.
const visibleGPUs = "CUDA_VISIBLE_DEVICES"

// ordinals returns the UUID of each CUDA ordinal of the process, nil if nothing tells. CUDA numbers the GPUs that it can
// open, and CUDA_VISIBLE_DEVICES picks among them. What the process has open is at least what it picked: of what it
// could have chosen from, the first that agrees with that is taken.
func (p *process) ordinals(gpus []ledger.GPU, driver NVML) []string {
	opened, known := driver.OfMinors(p.open, gpus)
	if !known {
		return nil // it uses GPUs that NVML does not list, among which ours have other numbers
	}
	var best []string
	for _, base := range p.bases(gpus, opened, driver) {
		uuids := driver.Ordinals(p.environ, base)
		if len(opened) == 0 || p.picksAll(uuids) && among(uuids, opened) {
			return uuids
		}
		if len(best) == 0 {
			best = uuids
		}
	}
	return best
}

// bases lists what the process can have chosen from, best evidence first.
func (p *process) bases(gpus, opened []ledger.GPU, driver NVML) (list [][]ledger.GPU) {
	instances := slices.ContainsFunc(gpus, func(g ledger.GPU) bool { return g.Parent != "" })
	add := func(base []ledger.GPU) {
		if p.contained && instances { // the node of a GPU does not tell which of its instances were given
			base = both(base, given(p.environ, gpus))
		}
		if len(base) > 0 {
			list = append(list, renumbered(base))
		}
	}
	add(opened)
	if !p.contained {
		return append(list, gpus)
	}
	if nodes, known := driver.OfMinors(p.nodes, gpus); known {
		add(nodes)
	}
	add(given(p.environ, gpus))
	return list
}

// picksAll says whether no entry of CUDA_VISIBLE_DEVICES was invalid, as most that are set are.
func (p *process) picksAll(uuids []string) bool {
	list, set := environ.Lookup(p.environ, visibleGPUs)
	instance := len(uuids) == 1 && strings.HasPrefix(uuids[0], "MIG-") // there is one, whatever was picked
	return !set || instance || len(uuids) == strings.Count(list, ",")+1
}

// among says whether each ordinal that is known is one of the GPUs.
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

// seesOne says whether the process can use one GPU only, where there is no NVML to name it.
func (p *process) seesOne() bool {
	if list, set := environ.Lookup(p.environ, visibleGPUs); set && list != "" && !strings.Contains(list, ",") {
		return true
	}
	return len(p.open) == 1 || len(p.open) == 0 && len(p.nodes) == 1
}

// given returns the GPUs of a container with this environment: CUDA numbers only
// those. It returns nil when the environment does not tell and there are several.
func given(variables []string, gpus []ledger.GPU) []ledger.GPU {
	if len(gpus) == 1 {
		return gpus
	}
	list, _ := environ.Lookup(variables, givenGPUs)
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

// renumbered returns the GPUs numbered as if there were no others: so CUDA numbers those that a process can open.
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
