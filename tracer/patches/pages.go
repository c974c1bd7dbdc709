// SPDX-License-Identifier: Apache-2.0

package patches

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/vramprof/vramprof/tracer/procfs"
)

// pages reads from /proc/PID/pagemap which pages of a process are its own copies. Reading it does
// not touch the pages.
type pages struct {
	*os.File
	size uint64 // of a page
}

func openPages(pid uint32) (pages, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", procfs.Thread(pid)))
	return pages{f, uint64(os.Getpagesize())}, err
}

// maxPages is how many pages of a mapping are read at once: 256 MiB of code.
const maxPages = 1 << 16

// own returns a function that reports whether the page at an address is the process's own copy of
// the file's page. It returns nil if no page between start and end is.
func (p pages) own(start, end uint64) (func(address uint64) bool, error) {
	n := (end - start) / p.size
	if n > maxPages {
		return func(address uint64) bool {
			entries, err := p.entries(address, 1)
			return err != nil || len(entries) == 1 && isOwn(entries[0])
		}, nil
	}
	entries, err := p.entries(start, n)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if isOwn(entry) {
			return func(address uint64) bool {
				i := (address - start) / p.size // huge for an address before start
				return i < uint64(len(entries)) && isOwn(entries[i])
			}, nil
		}
	}
	return nil, nil
}

// entries returns the kernel's entries of n pages, or fewer if the process has ended.
func (p pages) entries(start, n uint64) ([]uint64, error) {
	b := make([]byte, n*8)
	read, err := p.ReadAt(b, int64(start/p.size*8))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	entries := make([]uint64, read/8)
	for i := range entries {
		entries[i] = binary.NativeEndian.Uint64(b[i*8:])
	}
	return entries, nil
}

// isOwn reports whether a page is in memory or in swap, and not a file's: bits 63, 62 and 61 of
// Documentation/admin-guide/mm/pagemap.rst. A page that is in neither is the file's when it is
// read.
func isOwn(entry uint64) bool {
	const present, swapped, file = 1 << 63, 1 << 62, 1 << 61
	return entry&(present|swapped) != 0 && entry&file == 0
}
