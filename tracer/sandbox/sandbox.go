// SPDX-License-Identifier: Apache-2.0

// Package sandbox drops the privileges that a process no longer needs, so that a bug in parsing a
// traced process's hostile files does not give an attacker root.
//
// It drops capabilities from all sets of all threads, the right to gain new ones, and system calls
// that a tracer never makes. The filter lists denied calls, not allowed ones: NVIDIA's library
// makes undocumented system calls that differ by version, and a session of days must not fail in
// the middle. A denied call fails with EPERM instead of killing the process, which would lose the
// session's results.
package sandbox

import "errors"

// Needs describes what the process still does.
type Needs struct {
	Capabilities Set  // to keep, if the process has them
	Programs     bool // loads BPF programs
	BPF          bool // makes any call of bpf(2): tracing has yet to begin
	Compares     bool // compares open files of processes
	Terminal     bool // sends its process group the signals of Ctrl-C and Ctrl-Z, as a terminal does
}

// Process confines the calling process permanently, and can be called again with fewer needs.
// Afterwards, the process cannot start programs, and can create only AF_UNIX and AF_NETLINK
// sockets. Process tries each step even if others fail; the error names the failed steps.
func Process(needs Needs) error {
	return errors.Join(Drop(needs.Capabilities), filter(needs))
}
