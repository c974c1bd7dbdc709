// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"encoding/binary"
	"testing"
)

func TestTheFirstArgumentOfArmCodeIsFollowed(t *testing.T) {
	const (
		branch = 0x17feba0e // b pthread_getspecific
		ret    = 0xd65f03c0
	)
	for _, c := range []struct {
		name   string
		code   []uint32
		want   uint64
		loaded bool
		ok     bool
	}{
		{"Debian 12: the key, _PyRuntime not at the begin of a page", []uint32{
			0xb0002e20, // adrp x0, a36000
			0x91002000, // add  x0, x0, #8
			0xf9412c01, // ldr  x1, [x0, #600]
			0xb4000061, // cbz  x1, …
			0xb9426400, // ldr  w0, [x0, #612]
			branch, 0xd2800000, ret,
		}, 0xa36008 + 612, true, true},
		{"Debian 11: sums through several registers", []uint32{
			0xb0002e20,                         // adrp x0, a36000
			0x91220002, 0x91004043, 0xf9413041, // add x2, x0, #0x880; add x3, x2, #0x10; ldr x1, [x2, #0x260]
			0xb4000041, 0xb9425c60, branch, // cbz x1, …; ldr w0, [x3, #0x25c]
		}, 0xa36880 + 0x10 + 0x25c, true, true},
		{"the address of Py_tss_t, after a landing pad and a signed return address", []uint32{
			0xd503245f, 0xd503233f, 0xb0002e21, 0x91002021, 0xaa0103e2, 0x9117c040, branch, // bti c; paciasp; adrp x1; add x1, x1, #8; mov x2, x1; add x0, x2, #0x5f0
		}, 0xa36008 + 0x5f0, false, true},
		{"a library: _PyRuntime from its table of addresses", []uint32{
			0xb0002e20, 0xf943d400, 0x9117c000, branch, // adrp x0; ldr x0, [x0, #1960]; add x0, x0, #0x5f0
		}, 0, false, false},
		{"nothing is loaded", []uint32{0xd503201f, branch}, 0, false, false},
		{"no branch", []uint32{0xb0002e20, 0x91002000}, 0, false, false},
	} {
		var code []byte
		for _, w := range c.code {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
		got, loaded, ok := firstArgument(append(code, 1, 2, 3), 0x471314)
		if ok != c.ok || ok && (got != c.want || loaded != c.loaded) {
			t.Errorf("%s: %#x, loaded %v, known %v", c.name, got, loaded, ok)
		}
	}
}
