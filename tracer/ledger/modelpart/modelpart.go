// SPDX-License-Identifier: Apache-2.0

// Package modelpart names which part of a model and its training a storage is, as references prove
// it: a parameter, a gradient, the state of an optimizer. Kinds are codes, which captures keep.
package modelpart

// Kind is what a storage is. Where several apply, as to a weight that the autograd graph has saved
// too, the first does.
type Kind uint8

const (
	None      Kind = iota // no reference proves any other
	Weight                // a tensor of class torch.nn.Parameter has it, or a module as a parameter
	Gradient              // .grad of a tensor leads to it
	State                 // an optimizer has it, and not as a parameter
	KVCache               // a path leads through a cache of keys and values of attention
	Buffer                // a torch.nn.Module has it as a buffer
	Saved                 // the autograd graph has saved it for the backward pass
	Workspace             // of a block without a storage: a variable of a library has its address, as PyTorch's table of cuBLAS' workspaces
	Kinds                 // how many there are
)

var names = [Kinds]string{"", "weight", "gradient", "optimizer_state", "kv_cache", "buffer", "saved", "workspace"}

// String returns a code: "weight"; "" for None.
func (k Kind) String() string {
	if k >= Kinds {
		return ""
	}
	return names[k]
}

// Set is a set of kinds.
type Set uint16

// Of returns the set of one kind; of None an empty one.
func Of(k Kind) Set {
	if k == None || k >= Kinds {
		return 0
	}
	return 1 << k
}

// First returns the kind that counts.
func (s Set) First() Kind {
	for k := Weight; k < Kinds; k++ {
		if s&Of(k) != 0 {
			return k
		}
	}
	return None
}

// Bytes has the bytes of each kind.
type Bytes [Kinds]uint64

// Sum returns all bytes.
func (b *Bytes) Sum() (sum uint64) {
	for _, n := range b {
		sum += n
	}
	return sum
}

// mostBytes is the most bytes of all kinds together, so that sums never overflow.
const mostBytes = 1 << 56

// Read returns the bytes of a list by kind, as a capture has it. What this version does not know is
// left out.
func Read(list []uint64) (b Bytes) {
	most := uint64(mostBytes)
	copy(b[:], list)
	for i, n := range b {
		b[i] = min(n, most)
		most -= b[i]
	}
	return b
}
