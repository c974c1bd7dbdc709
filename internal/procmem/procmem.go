// SPDX-License-Identifier: Apache-2.0

// Package procmem copies memory of processes with process_vm_readv. A call brings in pages that are
// not resident, and takes as long as the process wants: see procfs.Call and deadline.Call. Errors
// are those of the kernel: unix.ESRCH if the process has ended, unix.EPERM, or unix.EFAULT.
package procmem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxRanges is how many ranges the kernel copies in one call: IOV_MAX.
const maxRanges = 1024

// Gather copies at most 1024 ranges of a process's memory, one after the other, into b with one
// system call. It returns the number of bytes, fewer than wanted if a later part cannot be read,
// and an error if nothing can. The main thread may have ended: see Thread.
func Gather(pid int, b []byte, ranges []unix.RemoteIovec) (int, error) {
	local := []unix.Iovec{{Base: unsafe.SliceData(b)}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(pid, local, ranges, 0)
	if err == unix.ESRCH {
		if thread := Thread(pid); thread != pid {
			return unix.ProcessVMReadv(thread, local, ranges, 0)
		}
	}
	return n, err
}

// GatherAll fills b with ranges of a process's memory, one after the other, which have as many
// bytes together. The error is unix.EFAULT if any part cannot be read.
func GatherAll(pid int, b []byte, ranges []unix.RemoteIovec) error {
	for len(ranges) > 0 {
		batch, wanted := ranges[:min(maxRanges, len(ranges))], 0
		for _, r := range batch {
			wanted += r.Len
		}
		n, err := Gather(pid, b, batch)
		if err == nil && n < wanted {
			err = unix.EFAULT
		}
		if err != nil {
			return err
		}
		b, ranges = b[wanted:], ranges[len(batch):]
	}
	return nil
}

// Read fills b from an address of a process. The error is unix.EFAULT if any part cannot be read.
func Read(pid int, b []byte, address uint64) error {
	return GatherAll(pid, b, []unix.RemoteIovec{{Base: uintptr(address), Len: len(b)}})
}
