// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
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
