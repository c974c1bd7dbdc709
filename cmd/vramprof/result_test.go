// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
)

func TestExitCodesOfResultsThatCannotBeWritten(t *testing.T) {
	for err, want := range map[error]int{
		output.Error{Err: unix.EACCES}:                      exitError, // the file's, not a missing privilege
		fmt.Errorf("write -: %w", output.ErrTerminal):       exitUsage,
		fmt.Errorf("open the session: %w", unix.EACCES):     exitPrivilege,
		output.Error{Err: fmt.Errorf("%w", unix.EPERM)}:     exitError,
		fault.Usage(fmt.Errorf("unknown format %q", "svg")): exitUsage,
	} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
}
