// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// KernelTypes reads the types of the running kernel.
func KernelTypes(types *btf.Cache) (*btf.Spec, error) {
	kernel, err := types.Kernel()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's types (Linux with CONFIG_DEBUG_INFO_BTF is needed): %w", err)
	}
	return kernel, nil
}

// Options returns how to load programs: into these maps, and with the kernel's own types alone. By
// default, cilium/ebpf also reads the types of all kernel modules. Its version 0.22 does so without
// the lock of the kernel's types, and crashes if another goroutine loads programs.
func Options(types *btf.Cache, maps map[string]*ebpf.Map) ebpf.CollectionOptions {
	kernel, _ := types.Kernel() // nil, the default, if it cannot be read: loading then fails likewise
	return ebpf.CollectionOptions{MapReplacements: maps, Cache: types, Programs: ebpf.ProgramOptions{KernelTypes: kernel}}
}
