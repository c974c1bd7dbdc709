// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
)

// runtimeCode tells the kernel half which code of runtimes' files belongs to which wrapper: the
// user space half of bpf/runtime_parts.h. Copies of a file in several containers have one entry.
type runtimeCode struct {
	parts *ebpf.Map
	files map[uint64]*codeOfFile // by the unwinder's id of their content
}

// codeOfFile is what the kernel half knows of the files with one content.
type codeOfFile struct {
	id      uint64
	unnamed uint32 // the wrapper that counts calls of the driver from the library in which no wrapper was found; 0: of a program
	users   int
	keys    [][]byte
}

// fileBits are the bits of a prefix that tell the file; those of the address follow.
const fileBits = 64

// add writes the wrappers of a file. library tells a runtime library from a program that contains
// the runtime, which calls the driver by itself too.
func (c *runtimeCode) add(id uint64, wrappers []*wrapper, library bool, table *wrapperTable) (*codeOfFile, error) {
	if known := c.files[id]; known != nil {
		known.users++
		return known, nil
	}
	x := &codeOfFile{id: id, users: 1}
	if library {
		x.unnamed = table.take()
	}
	err := c.put(x, fileBits, 0, bpf.RuntimePart{Unnamed: x.unnamed})
	for _, w := range wrappers {
		at := w.at
		part := bpf.RuntimePart{Entry: at.Symbol + at.Probe - at.Offset, Function: uint32(w.function()) + 1, Unnamed: x.unnamed}
		for from, to := at.Symbol, at.Symbol+at.Size; from < to && err == nil; {
			size := largestBlock(from, to)
			err = c.put(x, fileBits+64-bits.TrailingZeros64(size), from, part)
			from += size
		}
	}
	if err != nil {
		c.remove(x, table)
		return nil, fmt.Errorf("write the wrappers of a runtime: %w", err)
	}
	c.files[id] = x
	return x, nil
}

// largestBlock returns the size of the largest aligned block that begins at from and ends at to or
// before: a power of two.
func largestBlock(from, to uint64) uint64 {
	size := uint64(1) << (63 - bits.LeadingZeros64(to-from))
	if from != 0 {
		size = min(size, from&-from)
	}
	return size
}

func (c *runtimeCode) put(x *codeOfFile, length int, address uint64, part bpf.RuntimePart) error {
	key := binary.LittleEndian.AppendUint32(nil, uint32(length))
	key = binary.LittleEndian.AppendUint64(key, x.id)
	key = binary.BigEndian.AppendUint64(key, address)
	if err := c.parts.Put(key, part); err != nil {
		return err
	}
	x.keys = append(x.keys, key)
	return nil
}

// drop takes back one add.
func (c *runtimeCode) drop(x *codeOfFile, table *wrapperTable) {
	if x.users--; x.users == 0 {
		delete(c.files, x.id)
		c.remove(x, table)
	}
}

func (c *runtimeCode) remove(x *codeOfFile, table *wrapperTable) {
	for _, key := range x.keys {
		if err := c.parts.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			break // the map is closed
		}
	}
	table.give(x.unnamed)
}
