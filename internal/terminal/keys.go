// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// DiscardKeys discards what was typed while a screen ended: it was not meant for the shell.
func DiscardKeys() {
	discardTyped(os.Stdin)
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		defer tty.Close()
		discardTyped(tty)
	}
}

// discardTyped discards what was typed into a terminal and not read. It does nothing in the
// background, where the kernel would stop vramprof.
func discardTyped(terminal *os.File) {
	fd := int(terminal.Fd())
	if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && group == unix.Getpgrp() {
		_ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH)
	}
}
