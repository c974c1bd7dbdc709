// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// detachQuiet is after how long the end of a session reports that it waits for the kernel.
const detachQuiet = 300 * time.Millisecond

// detach frees what tracing took, and reports that it waits for the kernel if that takes long.
func (s *session) detach() {
	defer sayLater(s.stderr, "vramprof: detaching probes: the kernel waits until no thread runs in one")()
	s.tracer.Close()
}

// sayLater prints a line after detachQuiet, unless end is called before.
func sayLater(w io.Writer, line string) (end func()) {
	say := time.AfterFunc(detachQuiet, func() { fmt.Fprintln(w, line) })
	return func() { say.Stop() }
}

// discardKeys discards what was typed while a screen ended: it was not meant for the shell.
func discardKeys() {
	discardTyped(os.Stdin)
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		defer tty.Close()
		discardTyped(tty)
	}
}

// discardTyped discards what was typed into a terminal and not read. It does nothing in the background,
// where the kernel would stop vramprof.
func discardTyped(terminal *os.File) {
	fd := int(terminal.Fd())
	if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && group == unix.Getpgrp() {
		_ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH)
	}
}
