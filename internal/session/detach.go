// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"io"
	"time"
)

// detachQuiet is after how long the end of a session reports that it waits for the kernel.
const detachQuiet = 300 * time.Millisecond

// detach frees what tracing took, and reports that it waits for the kernel if that takes long.
func (s *Session) detach() {
	defer sayLater(s.Stderr, "vramprof: detaching probes: the kernel waits until no thread runs in one")()
	s.tracer.Close()
}

// sayLater prints a line after detachQuiet, unless end is called before.
func sayLater(w io.Writer, line string) (end func()) {
	say := time.AfterFunc(detachQuiet, func() { fmt.Fprintln(w, line) })
	return func() { say.Stop() }
}
