// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

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
