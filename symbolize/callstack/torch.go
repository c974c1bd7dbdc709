// SPDX-License-Identifier: Apache-2.0

package callstack

import (
	"path"
	"strings"
)

// IsTorch reports whether a file is a library of PyTorch: libtorch_cpu.so, libc10.so.2.6.
func IsTorch(file string) bool {
	base := path.Base(file)
	return strings.HasPrefix(base, "libtorch") || strings.HasPrefix(base, "libc10")
}

// IsTorchAllocator reports whether a file is the library of PyTorch's caching allocator for GPUs:
// libc10_cuda.so, under any version.
func IsTorchAllocator(file string) bool {
	return strings.HasPrefix(path.Base(file), "libc10_cuda.so")
}
