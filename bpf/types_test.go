// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/vramprof/vramprof/bpf"
)

// Only with given types does cilium/ebpf leave out those of modules, which it cannot read in two
// goroutines.
func TestProgramsAreLoadedWithTheTypesOfTheKernelAlone(t *testing.T) {
	types := btf.NewCache()
	kernel, err := types.Kernel()
	if err != nil {
		t.Skip(err)
	}
	if o := bpf.Options(types, nil); o.Programs.KernelTypes != kernel || o.Cache != types {
		t.Error("the kernel's types are not given")
	}
}
