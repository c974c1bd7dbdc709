// SPDX-License-Identifier: Apache-2.0

package codec

import "encoding/binary"

// AppendUvarints appends numbers as encoding/binary's Uvarints.
func AppendUvarints(out []byte, list ...uint64) []byte {
	for _, n := range list {
		out = binary.AppendUvarint(out, n)
	}
	return out
}

// Uvarints reads what AppendUvarints wrote in this process: it does not check the data.
type Uvarints []byte

// Next returns the next number.
func (u *Uvarints) Next() uint64 {
	n, size := binary.Uvarint(*u)
	*u = (*u)[size:]
	return n
}

// Read sets numbers to the next ones.
func (u *Uvarints) Read(to ...*uint64) {
	for _, n := range to {
		*n = u.Next()
	}
}
