// SPDX-License-Identifier: Apache-2.0

package gate

import "testing"

// TestLibrariesAreNamedByFile: ci named a function of a library behind the whole path of its file,
// unlike all other reports.
func TestLibrariesAreNamedByFile(t *testing.T) {
	for want, l := range map[string]Line{
		"Addmm::apply [libtorch_cpu.so.2.6.0]": {Function: "Addmm::apply", File: "/usr/lib/libtorch_cpu.so.2.6.0"},
		"train.py:88 forward":                  {Function: "forward", File: "train.py", Line: 88, Python: true},
		"train.py forward":                     {Function: "forward", File: "train.py", Python: true},
		"main":                                 {Function: "main"},
	} {
		if got := l.place(); got != want {
			t.Errorf("the place is %q, want %q", got, want)
		}
	}
}
