// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package sandbox

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// #include "threads.h"
import "C"

// prepare sets the capabilities that signaled threads keep.
func prepare(keep Set) error {
	if result := C.confine_prepare(C.uint32_t(keep), C.uint32_t(keep>>32)); result != 0 {
		return syscall.Errno(-result)
	}
	return nil
}

// ask signals a thread to drop its other capabilities.
func ask(tid int) error { return unix.Tgkill(os.Getpid(), tid, unix.Signal(C.confine_signal)) }
