// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// span is the tree's value for one prefix of addresses.
type span struct{ file, bias uint64 }

// marker is the prefix under which the profiler stores that a process is known.
var marker = lpm.Prefix{Key: 0, Length: 64}

// layout describes a process's mappings of code, and its Python. It is immutable but for number,
// hash, members, and spans of a layout that was refused.
type layout struct {
	number uint32 // in the kernel's maps; 0: not loaded
	hash   uint64 // the kernel's hash of the mappings; 0: unknown
	sum    uint64 // checksum of spans and python
	spans  map[lpm.Prefix]span
	python []byte // a support.PyProcInfo; nil without Python
	user   uint32
	cut    bool // some of the process's mappings are missing

	mappings []process.RawMapping // of the first process, as passed to the profiler
	members  map[uint32]bool      // by pid; true: the profiler knows the process
}

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

// tree is the kernel's maps of layouts: of their spans, and of their Pythons by number.
type tree struct{ prefixes, pythons *ebpf.Map }

// write inserts a layout into the kernel's maps. No process has its number yet, so the order does
// not matter.
func (t tree) write(at *layout) error {
	if at.python != nil {
		if err := t.pythons.Put(at.number, at.python); err != nil {
			return fmt.Errorf("store the Python of a layout: %w", err)
		}
	}
	keys, values := keysOf(at)
	if _, err := t.prefixes.BatchUpdate(keys, values, nil); err == nil {
		return nil
	}
	for i := range keys { // Linux before 5.13 has no batch updates of tries
		if err := t.prefixes.Put(&keys[i], &values[i]); err != nil {
			return fmt.Errorf("store the mappings of a layout: %w", err)
		}
	}
	return nil
}

// erase deletes a layout from the kernel's maps.
func (t tree) erase(at *layout) {
	if at.python != nil {
		_ = t.pythons.Delete(at.number)
	}
	keys, _ := keysOf(at)
	if n, err := t.prefixes.BatchDelete(keys, nil); err != nil {
		for i := range keys[min(n, len(keys)):] {
			_ = t.prefixes.Delete(&keys[n+i])
		}
	}
}
