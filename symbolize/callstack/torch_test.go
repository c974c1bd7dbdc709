// SPDX-License-Identifier: Apache-2.0

package callstack

import "testing"

func TestLibrariesOfPyTorch(t *testing.T) {
	for file, want := range map[string][2]bool{
		"/opt/venv/lib/python3.11/site-packages/torch/lib/libc10_cuda.so": {true, true},
		"libc10_cuda.so.2.6":        {true, true},
		"/usr/lib/libtorch_cpu.so":  {true, false},
		"/usr/lib/libc10.so":        {true, false},
		"/usr/lib/libcuda.so.1":     {false, false},
		"/home/libtorch/bin/server": {false, false},
		"":                          {false, false},
	} {
		if got := [2]bool{IsTorch(file), IsTorchAllocator(file)}; got != want {
			t.Errorf("%q: %v, want %v", file, got, want)
		}
	}
}
