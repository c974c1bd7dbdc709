// SPDX-License-Identifier: Apache-2.0

// Package peek reads the memory of another process, which is neither stopped nor changed: only
// pages that are resident, by process_vm_readv, and pages of mapped files. It copies memory in one
// sweep, and records it for tests.
package peek

import (
	"errors"
	"slices"
	"strings"
)

const (
	PageSize  = 4096
	PageShift = 12
	// addressEnd is the end of user space: of arm64; x86_64 has half of it.
	AddressEnd = 1 << 48
)

// Memory reads one process. Addresses are the process's own. Implementations need not be safe for
// concurrent use.
type Memory interface {
	// Regions returns what is mapped, sorted by address, without overlaps. The caller does not
	// change it.
	Regions() []Region
	// ReadAt fills p from an address and returns how many bytes it could read from there on. It
	// returns an error whenever it reads less than len(p).
	ReadAt(p []byte, address uint64) (int, error)
	// Symbols returns the addresses of the named data objects of the Python interpreter that the
	// process has loaded. Missing names are left out; without an interpreter it is ErrNoPython.
	Symbols(names ...string) (map[string]uint64, error)
}

// Region is one mapped range of addresses.
type Region struct {
	Start, End uint64
	Offset     uint64 // of Start in the file
	Path       string // of the file, "[heap]", "[stack]" or ""
	Readable   bool
	Writable   bool
	Private    bool // writes are not shared with others

	device, inode uint64 // of the file of a running process; 0: unknown
}

var (
	// ErrNoPython reports a process that has no CPython loaded.
	ErrNoPython = errors.New("no Python interpreter in the process")
	// errAbsent reports an address that no page backs, or none that may be read.
	errAbsent = errors.New("not resident")
)

// File reports whether a region maps a regular file: "/usr/lib/libtorch_cpu.so", not
// "/dev/nvidia0".
func (r Region) File() bool {
	return strings.HasPrefix(r.Path, "/") && !strings.HasPrefix(r.Path, "/dev/") && !strings.HasPrefix(r.Path, "/memfd:")
}

// Forbidden reports whether a region must never be read: memory of devices, and the kernel's own
// pages.
func (r Region) Forbidden() bool {
	if !r.Readable {
		return true
	}
	if strings.HasPrefix(r.Path, "/dev/") {
		return !strings.HasPrefix(r.Path, "/dev/shm/") && r.Path != "/dev/zero"
	}
	return strings.HasPrefix(r.Path, "[v") || strings.HasPrefix(r.Path, "anon_inode:")
}

// Own reports whether a region can hold a process's heap: writable, private, and memory.
func (r Region) Own() bool { return r.Writable && r.Private && !r.Forbidden() }

// regionAt returns the region that contains an address.
func regionAt(regions []Region, address uint64) (Region, bool) {
	i, found := slices.BinarySearchFunc(regions, address, func(r Region, a uint64) int {
		switch {
		case r.End <= a:
			return -1
		case r.Start > a:
			return 1
		}
		return 0
	})
	if !found {
		return Region{}, false
	}
	return regions[i], true
}

// Pointer reports whether a word can be the address of an object.
func Pointer(v uint64) bool { return v&7 == 0 && v > 1<<16 && v < AddressEnd }
