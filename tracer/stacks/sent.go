// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
)

// Sent is the kernel half's table of the stacks that it has sent, which it changes meanwhile: the
// user space half of bpf/sent_stacks.h. Any goroutine may call its methods, but none after Close.
type Sent struct {
	memory []byte
	hashes []uint64 // by set and way
}

// OpenSent maps the kernel half's map of sent stacks, which may be closed afterwards.
func OpenSent(table *ebpf.Map) (*Sent, error) {
	n := int(table.MaxEntries()) * bpf.SentWays
	memory, err := unix.Mmap(table.FD(), 0, 8*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the table of sent stacks: %w", err)
	}
	return &Sent{memory, unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), n)}, nil
}

// Close unmaps the table; s may be nil.
func (s *Sent) Close() {
	if s != nil && s.memory != nil {
		_ = unix.Munmap(s.memory)
		s.memory, s.hashes = nil, nil
	}
}

// Forget has the kernel half send a stack again.
func (s *Sent) Forget(hash uint64) {
	first := int(hash>>32) % bpf.SentSets * bpf.SentWays
	if first >= len(s.hashes) {
		return
	}
	for i := range s.hashes[first : first+bpf.SentWays] {
		atomic.CompareAndSwapUint64(&s.hashes[first+i], hash, 0)
	}
}

// Len counts the stacks in the table.
func (s *Sent) Len() (n int) {
	for i := range s.hashes {
		if atomic.LoadUint64(&s.hashes[i]) != 0 {
			n++
		}
	}
	return n
}
