// SPDX-License-Identifier: Apache-2.0

// Package confine lets a process give up what it does not need any more: a
// flaw in the reading of a traced process's files, which are hostile, shall not be worth root.
//
// It takes away capabilities, in all sets of all threads, the right to gain new ones, and system calls
// that a tracer never makes. The filter is a list of what is denied, not of what is allowed: NVIDIA's
// library makes system calls that we do not know, which differ by version, and a trace of days must not lose its figures
// in the middle. A denied call is an error (EPERM), not the end: what was traced so far would be lost.
package confine

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Set has bit n for the capability with number n.
type Set uint64

// Of makes a Set of unix.CAP_… numbers.
func Of(capabilities ...int) (s Set) {
	for _, c := range capabilities {
		s |= 1 << c
	}
	return s
}

// Has says whether all of other are in s.
func (s Set) Has(other Set) bool { return s&other == other }

// Held are the capabilities that the calling thread can use.
func Held() (Set, error) {
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

// Needs is what the process still does.
type Needs struct {
	Capabilities Set  // kept, as far as the process has them
	Programs     bool // it loads BPF programs
}

// Process confines the calling process for good. It starts no programs and makes no sockets afterwards, but for
// those of AF_UNIX and AF_NETLINK. Each step is tried whatever becomes of the others; the error names those that failed.
func Process(needs Needs) error {
	return errors.Join(drop(needs.Capabilities), filter(needs))
}

// CanWrite says whether the process could make files in dir if it had not these capabilities.
func CanWrite(dir string, without Set) bool {
	runtime.LockOSThread() // the others keep theirs
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
		panic("confine: a thread cannot have its own capabilities back")
	}
	return err == nil
}
