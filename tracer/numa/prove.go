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
	maps, err := findDirectMaps(root, arch, unix.Getpagesize())
	if err != nil {
		return bpf.DirectMap{}, err
	}
	for _, m := range maps {
		if err = prove(m); err == nil {
			return m, nil
		}
	}
	return bpf.DirectMap{}, fmt.Errorf("read a marked page: %w", err)
}

// reader runs the program that reads marked pages of this process.
type reader struct{ *ebpf.Collection }

func newReader(m bpf.DirectMap) (reader, error) {
	spec, err := bpf.LoadMarked()
	if err != nil {
		return reader{}, err
	}
	if err := bpf.SetDirectMap(spec, m); err != nil {
		return reader{}, err
	}
	coll, err := ebpf.NewCollection(spec)
	return reader{coll}, err
}

// Results of compare. notMarked is a bit beside the others.
const (
	equal = iota
	unreadable
	differs
	notMarked = 4
)

// compare reads the word at address through the page tables and compares it.
func (r reader) compare(address *byte, word uint64) (result uint32, err error) {
	arguments := struct{ Address, Word uint64 }{uint64(uintptr(unsafe.Pointer(address))), word}
	return r.Programs["read_marked_word"].Run(&ebpf.RunOptions{Context: arguments})
}

// prove reads a page without access rights, whose page-table entry is that of a marked page, and
// compares a word of it.
func prove(m bpf.DirectMap) error {
	r, err := newReader(m)
	if err != nil {
		return err
	}
	defer r.Close()
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map a page: %w", err)
	}
	defer func() { _ = unix.Munmap(page) }()
	offset, word := 8*rand.IntN(len(page)/8), rand.Uint64()
	binary.NativeEndian.PutUint64(page[offset:], word)
	if err := unix.Mprotect(page, unix.PROT_NONE); err != nil {
		return fmt.Errorf("mark a page: %w", err)
	}
	switch result, err := r.compare(&page[offset], word); {
	case err != nil:
		return err
	case result == unreadable:
		return errors.New("the page tables lead to no readable memory")
	case result != equal:
		return errors.New("the page tables lead to other memory")
	}
	return nil
}
