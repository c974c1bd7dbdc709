// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
)

// Prepare returns how the kernel half reads pages that NUMA balancing has marked, after a proof on
// a page of this process. root is the root file system, arch as in GOARCH.
func Prepare(root fs.FS, arch string) (bpf.DirectMap, error) {
	m, err := FindDirectMap(root, arch)
	if err != nil {
		return bpf.DirectMap{}, err
	}
	if err := prove(m); err != nil {
		return bpf.DirectMap{}, fmt.Errorf("read a marked page: %w", err)
	}
	return m, nil
}

// prove reads a page without access rights, whose page-table entry is that of a marked page, and
// compares a word of it.
func prove(m bpf.DirectMap) error {
	spec, err := bpf.LoadMarked()
	if err != nil {
		return err
	}
	if err := bpf.SetDirectMap(spec, m); err != nil {
		return err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	defer coll.Close()
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map a page: %w", err)
	}
	defer func() { _ = unix.Munmap(page) }()
	offset, word := 8*rand.IntN(len(page)/8), rand.Uint64()
	binary.NativeEndian.PutUint64(page[offset:], word)
	arguments := struct{ Address, Word uint64 }{uint64(uintptr(unsafe.Pointer(&page[offset]))), word}
	if err := unix.Mprotect(page, unix.PROT_NONE); err != nil {
		return fmt.Errorf("mark a page: %w", err)
	}
	result, err := coll.Programs["read_marked_word"].Run(&ebpf.RunOptions{Context: arguments})
	switch {
	case err != nil:
		return err
	case result == 1:
		return errors.New("the page tables lead to no readable memory")
	case result != 0:
		return errors.New("the page tables lead to other memory")
	}
	return nil
}
