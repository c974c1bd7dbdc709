// SPDX-License-Identifier: Apache-2.0

package peek

import "testing"

func TestStackPointer(t *testing.T) {
	for text, want := range map[string]uint64{
		"0 0x3 0x7f10 0x400 0x0 0x0 0x0 0x7ffd00001010 0x7f20\n": 0x7ffd00001010, "-1 0x7ffd00001010 0x7f20": 0x7ffd00001010,
		"running\n": 0, "": 0, "a b c": 0,
	} {
		if got, ok := parseSyscall(text); got != want && ok || ok != (want != 0) {
			t.Errorf("%q: %#x, %v", text, got, ok)
		}
	}
}
