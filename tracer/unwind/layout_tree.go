// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"math/bits"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// keysOf gives the tree's keys of a layout: number and address with their most significant bytes first.
func keysOf(at *layout) (keys []support.PIDPage, values []support.PIDPageMappingInfo) {
	keys, values = make([]support.PIDPage, 0, len(at.spans)), make([]support.PIDPageMappingInfo, 0, len(at.spans))
	for p, s := range at.spans {
		program := uint64(support.ProgUnwindNative) << 56
		keys = append(keys, support.PIDPage{
			Pid: bits.ReverseBytes32(at.number), Page: bits.ReverseBytes64(p.Key), PrefixLen: support.BitWidthPID + p.Length,
		})
		values = append(values, support.PIDPageMappingInfo{File_id: s.file, Bias_and_unwind_program: s.bias&(1<<56-1) | program})
	}
	return keys, values
}

// write brings a layout into the kernel. Nobody has its number yet, so the order does not matter.
func (l *layouts) write(at *layout) error {
	if at.python != nil {
		if err := l.pythons.Put(at.number, at.python); err != nil {
			return fmt.Errorf("note Python: %w", err)
		}
	}
	keys, values := keysOf(at)
	if _, err := l.prefixes.BatchUpdate(keys, values, nil); err == nil {
		return nil
	}
	for i := range keys { // Linux before 5.13 has no batches for trees
		if err := l.prefixes.Put(&keys[i], &values[i]); err != nil {
			return fmt.Errorf("note mappings: %w", err)
		}
	}
	return nil
}

func (l *layouts) erase(at *layout) {
	if at.python != nil {
		_ = l.pythons.Delete(at.number)
	}
	keys, _ := keysOf(at)
	if n, err := l.prefixes.BatchDelete(keys, nil); err != nil {
		for i := range keys[min(n, len(keys)):] {
			_ = l.prefixes.Delete(&keys[n+i])
		}
	}
}

// The profiler's calls, as it makes them while it looks at a process.

// UpdatePidPageMappingInfo notes one prefix of the process that is being loaded.
func (t *tables) UpdatePidPageMappingInfo(_ libpf.PID, prefix lpm.Prefix, file, bias uint64) error {
	return t.u.layouts.put(prefix, span{file, bias})
}

// DeletePidPageMappingInfo takes prefixes back.
func (t *tables) DeletePidPageMappingInfo(_ libpf.PID, prefixes []lpm.Prefix) (uint64, error) {
	return t.u.layouts.drop(prefixes), nil
}
