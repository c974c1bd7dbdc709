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

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Set is a set of capabilities: bit n is the capability with number n.
type Set uint64

// NewSet returns the Set of unix.CAP_… numbers.
func NewSet(capabilities ...int) (s Set) {
	for _, c := range capabilities {
		s |= 1 << c
	}
	return s
}

// Has reports whether s contains all of other.
func (s Set) Has(other Set) bool { return s&other == other }

// Effective returns the effective capabilities of the calling thread.
func Effective() (Set, error) {
	_, data, err := capabilities()
	if err != nil {
		return 0, err
	}
	return Set(data[0].Effective) | Set(data[1].Effective)<<32, nil
}

func capabilities() (unix.CapUserHeader, [2]unix.CapUserData, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return header, data, fmt.Errorf("read the capabilities: %w", err)
	}
	return header, data, nil
}

// Needs describes what the process still does.
type Needs struct {
	Capabilities Set  // to keep, if the process has them
	Programs     bool // loads BPF programs
	BPF          bool // makes any call of bpf(2): tracing has yet to begin
	Terminal     bool // sends its process group the signals of Ctrl-C and Ctrl-Z, as a terminal does
}

// Process confines the calling process permanently, and can be called again with fewer needs. Afterwards, the process cannot start programs,
// and can create only AF_UNIX and AF_NETLINK sockets. Process tries each step even if others fail;
// the error names the failed steps.
func Process(needs Needs) error {
	return errors.Join(Drop(needs.Capabilities), filter(needs))
}

// CanWrite reports whether the process could create files in dir without the given capabilities.
func CanWrite(dir string, without Set) bool {
	runtime.LockOSThread() // other threads keep their capabilities
	defer runtime.UnlockOSThread()
	header, before, err := capabilities()
	if err != nil {
		return false
	}
	after := before
	for i := range after {
		after[i].Effective &^= uint32(without >> (32 * i))
	}
	if unix.Capset(&header, &after[0]) != nil {
		return false
	}
	err = unix.Faccessat2(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	if unix.Capset(&header, &before[0]) != nil {
		panic("confine: a thread cannot restore its own capabilities")
	}
	return err == nil
}
