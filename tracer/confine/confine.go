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
	"os"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
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

// settle is how long a thread may be in the kernel where no signal reaches it.
const settle = time.Second

// drop takes away all other capabilities. Linux keeps them by thread, and C code has threads of which Go
// does not know: psx lets each make the calls, by a signal. It would wait for ever for a thread that
// hangs in a driver, so that is looked for first.
func drop(keep Set) error {
	for end := time.Now().Add(settle); ; time.Sleep(settle / 100) {
		stuck, err := uninterruptible()
		if err != nil {
			return fmt.Errorf("give up capabilities: %w", err)
		}
		if !stuck {
			break
		}
		if time.Now().After(end) {
			return errors.New("give up capabilities: a thread hangs in a driver")
		}
	}
	header, data, err := capabilities()
	if err != nil {
		return err
	}
	if data[0].Effective&(1<<unix.CAP_SETPCAP) != 0 {
		if err := emptyBoundingSet(); err != nil {
			return err
		}
	}
	for i := range data {
		mask := uint32(keep >> (32 * i))
		data[i].Permitted &= mask
		data[i].Effective = data[i].Permitted
		data[i].Inheritable = 0 // which empties the ambient set, too
	}
	_, _, errno := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&data)
	if errno != 0 {
		return fmt.Errorf("give up capabilities: %w", errno)
	}
	return nil
}

func emptyBoundingSet() error {
	for c := range uintptr(64) {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			return nil // beyond the last capability of this kernel
		}
		if has == 0 {
			continue
		}
		if _, _, errno := psx.Syscall3(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errno != 0 {
			return fmt.Errorf("empty the bounding set: %w", errno)
		}
	}
	return nil
}

// uninterruptible says whether one of our threads is in state D.
func uninterruptible() (bool, error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return false, err
	}
	for _, thread := range threads {
		text, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// "4242 (name) D 1 …", where the name may hold anything
		if strings.HasPrefix(string(text[strings.LastIndexByte(string(text), ')')+1:]), " D ") {
			return true, nil
		}
	}
	return false, nil
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
