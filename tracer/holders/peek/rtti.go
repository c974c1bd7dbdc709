// SPDX-License-Identifier: Apache-2.0

package peek

import "strings"

const maxTypeName = 500

// Words reads single words and C strings of a process. What cannot be read is 0.
type Words interface {
	U64(address uint64) uint64
	Text(address uint64) (string, bool)
}

// TypeInfo returns the address of the type information that a C++ vtable leads to, or 0.
func TypeInfo(m Words, vtable uint64) uint64 {
	// The offset to the object's begin is 0, or negative in the table of a second base.
	if top := int64(m.U64(vtable - 16)); top > 0 || top <= -1<<24 {
		return 0
	}
	return m.U64(vtable - 8)
}

// TypeName returns the mangled name in a C++ type_info: "N3c1010TensorImplE", "7MyClass".
func TypeName(m Words, info uint64) (string, bool) {
	name, ok := m.Text(m.U64(info+8) & (AddressEnd - 1))
	name = strings.TrimPrefix(name, "*")
	return name, ok && mangled(name)
}

// mangled reports whether a string can be the name of a type.
func mangled(s string) bool {
	if s == "" || len(s) > maxTypeName {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s[0] >= '0' && s[0] <= '9' || s[0] >= 'A' && s[0] <= 'Z'
}
