// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"math/bits"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// keysOf returns the tree's entries of a layout. Keys have number and address in big-endian order.
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

// write inserts a layout into the kernel's maps. No process has its number yet, so the order does
// not matter.
func (l *layouts) write(at *layout) error {
	if at.python != nil {
		if err := l.pythons.Put(at.number, at.python); err != nil {
			return fmt.Errorf("store the Python of a layout: %w", err)
		}
	}
	keys, values := keysOf(at)
	if _, err := l.prefixes.BatchUpdate(keys, values, nil); err == nil {
		return nil
	}
	for i := range keys { // Linux before 5.13 has no batch updates of tries
		if err := l.prefixes.Put(&keys[i], &values[i]); err != nil {
			return fmt.Errorf("store the mappings of a layout: %w", err)
		}
	}
	return nil
}

// erase deletes a layout from the kernel's maps.
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

// UpdatePidPageMappingInfo adds one prefix to the draft of the process being loaded.
func (t *tables) UpdatePidPageMappingInfo(_ libpf.PID, prefix lpm.Prefix, file, bias uint64) error {
	return t.u.layouts.put(prefix, span{file, bias})
}

// DeletePidPageMappingInfo removes prefixes from the draft.
func (t *tables) DeletePidPageMappingInfo(_ libpf.PID, prefixes []lpm.Prefix) (uint64, error) {
	return t.u.layouts.drop(prefixes), nil
}
