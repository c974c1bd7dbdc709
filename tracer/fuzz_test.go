// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"testing"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/functions"
)

// FuzzNames takes the names of libraries and versions of PyTorch as a process may choose them.
func FuzzNames(f *testing.F) {
	f.Add("libcuda.so.1", "__version__ = '2.6.0'\n")
	f.Add("x\ny", "__version__ = '\x1b'\n")
	f.Fuzz(func(t *testing.T, comm, stat string) {
		if layer, ok := layerOf(comm); ok && layer > functions.Torch {
			t.Errorf("%q is of layer %d", comm, layer)
		}
		if m := versionLine.FindStringSubmatch(stat); m != nil && untrusted.Clean(m[1]) != m[1] {
			t.Errorf("version %q", m[1])
		}
	})
}
