// SPDX-License-Identifier: Apache-2.0

// Package procenv reads the environment of a running process as the process's getenv sees it.
// /proc/PID/environ holds only the initial environment. It lacks later changes, such as a Python
// program's os.environ["CUDA_VISIBLE_DEVICES"] = "1".
//
// The C library keeps the environment in a variable: an array of pointers to strings. The package
// finds the variable by its symbol and reads variable, array and strings from the memory of the
// running process.
package procenv

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/vramprof/vramprof/internal/procmem"
	"github.com/vramprof/vramprof/tracer/procfs"
)

const (
	maxVariables = 4096
	maxVariable  = 32 << 10 // bytes of "KEY=value"; longer ones are skipped
	maxTotal     = 1 << 20

	timeout = 500 * time.Millisecond
)

// Read returns the environment of a process as "KEY=value" strings. A non-nil error explains why
// the result is only the initial environment, or nil if the process has exited.
//
// Read takes at most one second: a process can stall reads of its memory, see procfs.Call. The
// result is nil with deadline.ErrStuck if it stalls even those of its initial environment.
func Read(pid uint32) ([]string, error) {
	initial, err := procfs.Call(pid, timeout, func() ([]string, error) { return initial(procmem.Thread(int(pid))) })
	if err != nil {
		return nil, fmt.Errorf("environment of process %d: %w", pid, err)
	}
	live, err := procfs.Call(pid, timeout, func() ([]string, error) { return ofMemory(procmem.Thread(int(pid))) })
	if err == nil {
		return live, nil
	}
	return initial, fmt.Errorf("current environment of process %d is unknown, using the initial one: %w", pid, err)
}

// Lookup returns the value of a variable as getenv does: the first match wins.
func Lookup(variables []string, name string) (value string, ok bool) {
	for _, variable := range variables {
		if k, v, ok := strings.Cut(variable, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// initial reads the initial environment. The process may have overwritten that memory since: some
// programs store their title there.
func initial(pid int) ([]string, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTotal))
	if err != nil {
		return nil, err
	}
	return split(text), nil
}

// split splits "A=1\0B=2\0". It drops a last string that has no terminator: the read truncated it.
func split(text []byte) []string {
	variables := []string{}
	for len(variables) < maxVariables {
		variable, rest, whole := bytes.Cut(text, []byte{0})
		if !whole {
			break
		}
		if len(variable) > 0 && len(variable) <= maxVariable {
			variables = append(variables, string(variable))
		}
		text = rest
	}
	return variables
}
