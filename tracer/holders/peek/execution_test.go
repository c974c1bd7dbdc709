// SPDX-License-Identifier: Apache-2.0

package peek

import "testing"

func TestRandomAddressOfDamagedVectors(t *testing.T) {
	word := func(v byte) []byte { return []byte{v, 0, 0, 0, 0, 0, 0, 0} }
	whole := append(append(append(word(3), word(9)...), word(auxRandom)...), word(77)...)
	if a := randomAddress(whole); a != 77 {
		t.Errorf("address is %d", a)
	}
	for n := range whole {
		if a := randomAddress(whole[:n]); a != 0 {
			t.Errorf("of %d bytes the address is %d", n, a)
		}
	}
}
