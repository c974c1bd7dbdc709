// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"encoding/binary"
	"io"
	"os"
)

// Execution identifies what a process executes: it changes with each exec, though the process and
// its pid stay. It is zero if unknown.
type Execution [16]byte

// Differs reports whether an exec lies between two moments, as far as both are known.
func (e Execution) Differs(o Execution) bool {
	return e != o && e != (Execution{}) && o != (Execution{})
}

const (
	auxRandom = 25 // AT_RANDOM
	maxAux    = 4096
)

// Execution reads the random bytes that the kernel has put on the stack at the last exec. It opens
// the process anew: what is open stays with the memory from before an exec.
func (p *Process) Execution() (e Execution) {
	now, err := Open(p.pid)
	if err != nil {
		return e
	}
	defer now.Close()
	f, err := os.Open(p.proc("auxv"))
	if err != nil {
		return e
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAux))
	if err != nil {
		return e
	}
	if n, err := now.ReadAt(e[:], randomAddress(text)); err != nil || n != len(e) || p.alive() != nil {
		return Execution{}
	}
	return e
}

// randomAddress returns AT_RANDOM of an auxiliary vector, or 0.
func randomAddress(aux []byte) uint64 {
	for ; len(aux) >= 16; aux = aux[16:] {
		if binary.LittleEndian.Uint64(aux) == auxRandom {
			return binary.LittleEndian.Uint64(aux[8:])
		}
	}
	return 0
}
