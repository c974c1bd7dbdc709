// SPDX-License-Identifier: Apache-2.0

// Package fault marks errors with their kind, which decides the exit code of a command. Only the
// command knows the codes.
package fault

import (
	"errors"
	"fmt"
)

// Kind is what a marked error means to the user.
type Kind int

const (
	Failed      Kind = iota // whatever its cause: a file's EACCES is no missing privilege
	Misuse                  // a mistake in the command line
	NoPrivilege             // a privilege or a kernel feature is missing
	NoProcess               // no process uses CUDA, or none that was asked for
	WithStatus              // Error.Status is the exit code
)

// Error is an error with a mark.
type Error struct {
	error
	Kind   Kind
	Status int // of WithStatus
}

// Unwrap returns the error without the mark.
func (e Error) Unwrap() error { return e.error }

// New marks an error.
func New(kind Kind, err error) error { return Error{error: err, Kind: kind} }

// Denied is the error of a process whose memory may not be read, with the remedy.
func Denied(pid uint32, err error) error {
	return New(NoPrivilege, fmt.Errorf("process %d: %w (run vramprof as the process's user, or as root on the host, with CAP_SYS_PTRACE)", pid, err))
}

// Usage marks a mistake in the command line.
func Usage(err error) error { return New(Misuse, err) }

// Status marks an error with an exit code: that of a command that was traced.
func Status(code int, err error) error { return Error{error: err, Kind: WithStatus, Status: code} }

// Of returns the outermost mark of an error.
func Of(err error) (e Error, ok bool) {
	ok = errors.As(err, &e)
	return e, ok
}
