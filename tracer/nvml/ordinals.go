// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// partition is what ResolveOrdinals and GPUsByMinor need beyond ledger.GPU.
type partition struct {
	divided  bool     // of a GPU: it is in MIG mode, with or without instances
	minor    int      // of a GPU: number of its device node, -1 if unknown
	instance instance // of an instance
}

// instance identifies a MIG instance within its GPU, as in "MIG-GPU-<uuid>/1/0".
type instance struct{ gpu, compute uint32 }

// ResolveOrdinals returns the UUID of each CUDA ordinal of a process. environ is its environment
// ("KEY=value") when CUDA was initialized. gpus lists its GPUs, as Driver.GPUs does; for a
// container, only the container's. An ordinal whose GPU is unknown has UUID "". The list is empty
// if the process sees no GPU.
//
// CUDA_VISIBLE_DEVICES selects and orders the GPUs: by number, by UUID or a UUID's prefix, or as
// MIG-GPU-<uuid>/<GPU instance>/<compute instance>. The first invalid entry hides all that follow.
// Numbers follow NVML's order if CUDA_DEVICE_ORDER is PCI_BUS_ID. CUDA's own order, fastest first,
// follows an unpublished rule; it equals NVML's order if all GPUs have the same name. Otherwise
// LearnOrder asks CUDA; without an answer, numbers stay unresolved.
//
// A process sees at most one MIG instance, and then no whole GPU. A number or UUID of a GPU in MIG
// mode means its first instance.
//
// Sources: CUDA programming guide, environment variables; MIG user guide, CUDA device enumeration.
func ResolveOrdinals(environ []string, gpus []ledger.GPU) []string {
	return ordinals(environ, gpus, nil, nil)
}

// maxVisible is the most GPUs that a process can name, more than any machine has.
const maxVisible = 256

func ordinals(environ []string, gpus []ledger.GPU, partitions map[string]partition, order []string) []string {
	h := newHost(environ, gpus, partitions, order)
	list, set := lookup(environ, "CUDA_VISIBLE_DEVICES")
	if !set {
		return h.all()
	}
	var uuids []string
	for entry := range strings.SplitSeq(list, ",") {
		uuid, ok := h.resolve(strings.TrimSpace(entry))
		if !ok || len(uuids) >= maxVisible {
			break
		}
		if uuid != "" && slices.Contains(uuids, uuid) {
			return nil // CUDA rejects a list that repeats a device
		}
		uuids = append(uuids, uuid)
	}
	return h.oneInstance(uuids)
}

// lookup returns the first value of a variable, as getenv does.
func lookup(environ []string, key string) (value string, ok bool) {
	for _, entry := range environ {
		if k, v, ok := strings.Cut(entry, "="); ok && k == key {
			return v, true
		}
	}
	return "", false
}

// host is the machine's GPUs as one process numbers them.
type host struct {
	whole      []ledger.GPU            // by NVML's index, or in CUDA's order
	instances  map[string][]ledger.GPU // by UUID of their GPU
	partitions map[string]partition
	known      int // numbers below this one are indices into whole
}

func newHost(environ []string, gpus []ledger.GPU, partitions map[string]partition, order []string) *host {
	h := &host{instances: map[string][]ledger.GPU{}, partitions: partitions}
	for _, gpu := range gpus {
		if gpu.Parent != "" {
			h.instances[gpu.Parent] = append(h.instances[gpu.Parent], gpu)
		} else {
			h.whole = append(h.whole, gpu)
		}
	}
	slices.SortStableFunc(h.whole, func(a, b ledger.GPU) int { return cmp.Compare(a.Index, b.Index) })
	if by, _ := lookup(environ, "CUDA_DEVICE_ORDER"); by != "PCI_BUS_ID" && !sameModel(h.whole) {
		if inOrder(h.whole, order) {
			h.known = len(h.whole)
		}
		return h
	}
	// It is unknown whether CUDA counts a GPU that NVML could not read, or one in MIG mode without
	// instances.
	for h.known < len(h.whole) && h.whole[h.known].Index == h.known && !h.hollow(h.whole[h.known]) {
		h.known++
	}
	return h
}

func sameModel(gpus []ledger.GPU) bool {
	for _, gpu := range gpus {
		if gpu.Name != gpus[0].Name || gpu.Name == "" && len(gpus) > 1 {
			return false
		}
	}
	return true
}

// inOrder sorts GPUs by CUDA's default order. It returns false if the position of a GPU is unknown.
func inOrder(gpus []ledger.GPU, order []string) bool {
	for _, gpu := range gpus {
		if !slices.Contains(order, gpu.UUID) {
			return false
		}
	}
	slices.SortStableFunc(gpus, func(a, b ledger.GPU) int { return slices.Index(order, a.UUID) - slices.Index(order, b.UUID) })
	return true
}

// hollow reports whether a GPU is in MIG mode without an instance that CUDA could use.
func (h *host) hollow(gpu ledger.GPU) bool {
	return h.partitions[gpu.UUID].divided && len(h.instances[gpu.UUID]) == 0
}

// all returns what a process sees without CUDA_VISIBLE_DEVICES.
func (h *host) all() []string {
	if len(h.instances) == 1 { // the order does not matter
		for _, instances := range h.instances {
			return []string{instances[0].UUID}
		}
	}
	var uuids []string
	for number := range h.whole {
		uuid, _ := h.numbered(number)
		uuids = append(uuids, uuid)
	}
	return h.oneInstance(uuids)
}

// oneInstance applies the rule that a process sees one MIG instance and no whole GPU beside it.
func (h *host) oneInstance(uuids []string) []string {
	if len(h.instances) == 0 {
		return uuids
	}
	for _, uuid := range uuids {
		if h.isInstance(uuid) {
			return []string{uuid}
		}
		if uuid == "" { // it may be an instance, and then the only device
			return make([]string, len(uuids))
		}
	}
	return uuids
}

func (h *host) isInstance(uuid string) bool {
	for _, instances := range h.instances {
		if slices.ContainsFunc(instances, func(m ledger.GPU) bool { return m.UUID == uuid }) {
			return true
		}
	}
	return false
}

// resolve finds the device of one entry. ok is false if the entry is invalid; uuid is "" if the
// device is unknown.
func (h *host) resolve(entry string) (uuid string, ok bool) {
	switch {
	case begins(entry, "MIG-"):
		return h.instanceNamed(entry)
	case begins(entry, "GPU-"):
		gpu, ok := unique(h.whole, entry)
		if !ok {
			return "", false
		}
		return h.device(gpu), true
	}
	number, ok := leadingNumber(entry)
	if !ok {
		return "", false
	}
	return h.numbered(number)
}

func (h *host) numbered(number int) (uuid string, ok bool) {
	switch {
	case number < h.known:
		return h.device(h.whole[number]), true
	case len(h.whole) == 0, h.known == len(h.whole), number > h.whole[len(h.whole)-1].Index:
		return "", false
	}
	return "", true
}

// device returns the GPU, or its first instance.
func (h *host) device(gpu ledger.GPU) string {
	if instances := h.instances[gpu.UUID]; len(instances) > 0 {
		return instances[0].UUID
	}
	return gpu.UUID
}

// instanceNamed resolves MIG-<uuid>, a prefix of one, and MIG-GPU-<uuid>/1/0.
func (h *host) instanceNamed(entry string) (uuid string, ok bool) {
	var all []ledger.GPU
	for _, instances := range h.instances {
		all = append(all, instances...)
	}
	if m, ok := unique(all, entry); ok { // before R470, drivers used the second form as UUID
		return m.UUID, true
	}
	parts := strings.Split(entry[len("MIG-"):], "/")
	if len(parts) != 3 || !begins(parts[0], "GPU-") {
		return "", false
	}
	gpu, ok := unique(h.whole, parts[0])
	gi, err := strconv.ParseUint(parts[1], 10, 32)
	ci, err2 := strconv.ParseUint(parts[2], 10, 32)
	if !ok || err != nil || err2 != nil {
		return "", false
	}
	want := instance{uint32(gi), uint32(ci)}
	instances := h.instances[gpu.UUID]
	for _, m := range instances {
		if p, known := h.partitions[m.UUID]; known && p.instance == want {
			return m.UUID, true
		}
	}
	// The entry means one of the instances, but without their numbers it is unknown which.
	return "", len(instances) > 0 && h.partitions == nil
}

// unique finds the only device whose UUID has this prefix. Hex digits match in either case.
func unique(gpus []ledger.GPU, prefix string) (match ledger.GPU, ok bool) {
	for _, gpu := range gpus {
		switch {
		case !begins(gpu.UUID, prefix):
		case ok:
			return ledger.GPU{}, false // ambiguous
		default:
			match, ok = gpu, true
		}
	}
	return match, ok
}

func begins(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}

// leadingNumber parses like strtol, as CUDA does: "1x" is 1.
func leadingNumber(entry string) (number int, ok bool) {
	entry = strings.TrimPrefix(entry, "+")
	for i := 0; i < len(entry) && entry[i] >= '0' && entry[i] <= '9'; i++ {
		number, ok = min(number*10+int(entry[i]-'0'), 1<<20), true
	}
	return number, ok
}
