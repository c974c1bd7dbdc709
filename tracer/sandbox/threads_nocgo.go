// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package sandbox

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// prepare drops the capabilities of all threads: without C code, Go knows every thread. Unlike the
// signal, it waits for blocked threads.
func prepare(keep Set) error {
	if mayEmptyBoundingSet() {
		for c := uintptr(0); c < 64; c++ {
			if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errno != 0 {
				break // after the last capability of this kernel
			}
		}
	}
	header, data, err := capabilities()
	if err != nil {
		return err
	}
	for i := range data {
		data[i].Permitted &= uint32(keep >> (32 * i))
		data[i].Effective, data[i].Inheritable = data[i].Permitted, 0
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func ask(int) error { return nil }
