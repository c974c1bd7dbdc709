// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"slices"
	"strings"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Ordinals gives the UUID of each CUDA ordinal of a process whose environment
// ("KEY=value" each) and GPUs are these: CUDA_VISIBLE_DEVICES picks and orders
// them, by index or by the beginning of a UUID, and an invalid entry hides all
// that follow. The empty list means that the process sees none.
//
// CUDA's own order may differ from gpus' on hosts with several GPU models, and
// MIG devices are not resolved. Source: CUDA programming guide, environment
// variables.
func Ordinals(environ []string, gpus []ledger.GPU) []string {
	visible, set := lookup(environ, "CUDA_VISIBLE_DEVICES")
	var uuids []string
	if !set {
		for _, gpu := range gpus {
			uuids = append(uuids, gpu.UUID)
		}
		return uuids
	}
	for entry := range strings.SplitSeq(visible, ",") {
		uuid := visibleGPU(strings.TrimSpace(entry), gpus)
		if uuid == "" {
			break
		}
		if slices.Contains(uuids, uuid) {
			return nil // CUDA refuses a list that repeats a device
		}
		uuids = append(uuids, uuid)
	}
	return uuids
}

// lookup finds the first value, as getenv does.
func lookup(environ []string, key string) (value string, ok bool) {
	for _, entry := range environ {
		if k, v, ok := strings.Cut(entry, "="); ok && k == key {
			return v, true
		}
	}
	return "", false
}

// visibleGPU resolves one entry to a UUID; "" if it is invalid.
func visibleGPU(entry string, gpus []ledger.GPU) string {
	if strings.HasPrefix(entry, "GPU-") {
		match := ""
		for _, gpu := range gpus {
			if !strings.HasPrefix(gpu.UUID, entry) {
				continue
			}
			if match != "" {
				return "" // ambiguous
			}
			match = gpu.UUID
		}
		return match
	}
	// CUDA reads numbers with strtol: "1x" is 1.
	index, digits := 0, 0
	for ; digits < len(entry) && entry[digits] >= '0' && entry[digits] <= '9'; digits++ {
		if index = index*10 + int(entry[digits]-'0'); index >= len(gpus) {
			return ""
		}
	}
	if digits == 0 {
		return ""
	}
	return gpus[index].UUID
}
