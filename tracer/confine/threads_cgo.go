// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package confine

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// #include "threads.h"
import "C"

// prepare says what threads that are asked keep.
func prepare(keep Set) error {
	if result := C.confine_prepare(C.uint32_t(keep), C.uint32_t(keep>>32)); result != 0 {
		return syscall.Errno(-result)
	}
	return nil
}

// ask sends a thread the signal at which it gives up the rest.
func ask(tid int) error { return unix.Tgkill(os.Getpid(), tid, unix.Signal(C.confine_signal)) }
