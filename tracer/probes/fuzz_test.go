// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"testing"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// FuzzTorchVersion takes the text beside PyTorch's libraries, which a process may choose.
func FuzzTorchVersion(f *testing.F) {
	f.Add("__version__ = '2.6.0'\n")
	f.Add("__version__ = '\x1b'\n")
	f.Fuzz(func(t *testing.T, text string) {
		if m := versionLine.FindStringSubmatch(text); m != nil && untrusted.Clean(m[1]) != m[1] {
			t.Errorf("version %q", m[1])
		}
	})
}
