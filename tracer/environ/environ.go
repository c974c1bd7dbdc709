// SPDX-License-Identifier: Apache-2.0

// Package environ reads the environment of a running process as its getenv
// sees it. /proc/PID/environ is what the process was started with: what it sets
// afterwards, as Python programs set os.environ["CUDA_VISIBLE_DEVICES"], is not in there.
//
// The C library keeps the environment in a variable: an array of pointers to
// strings. We find the variable by its symbol and read the three from the process's
// memory, while the process runs.
package environ

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/vramprof/vramprof/tracer/patience"
)

const (
	maxVariables = 4096
	maxVariable  = 32 << 10 // bytes of "KEY=value"; longer ones are left out
	maxTotal     = 1 << 20

	timeout = 500 * time.Millisecond
)

// Of returns the environment of a process, "KEY=value" each. If there is an
// error, it says why this is only the environment that the process was started
// with, or nil if the process is gone.
//
// It never takes longer than a second: a process may make reading its memory block.
func Of(pid uint32) ([]string, error) {
	live, err := patience.Call(timeout, func() ([]string, error) { return ofMemory(int(pid)) })
	if err == nil {
		return live, nil
	}
	initial, err2 := patience.Call(timeout, func() ([]string, error) { return initial(int(pid)) })
	if err2 != nil {
		return nil, fmt.Errorf("environment of process %d: %w", pid, errors.Join(err, err2))
	}
	return initial, fmt.Errorf("environment of process %d is the one of its start: %w", pid, err)
}

// Lookup finds a variable as getenv does: the first one counts.
func Lookup(variables []string, name string) (value string, ok bool) {
	for _, variable := range variables {
		if k, v, ok := strings.Cut(variable, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// initial reads the environment that the process was started with. Its memory
// may have been overwritten since: programs put their titles there.
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

// split takes apart "A=1\0B=2\0". A last string without its end is left out: it was cut.
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
