// SPDX-License-Identifier: Apache-2.0

package procmem

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapPages maps two pages of this process, of which the second cannot be read, and returns both.
func mapPages(t *testing.T) (address uint64, page int) {
	t.Helper()
	page = os.Getpagesize()
	b, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	for i := range b {
		b[i] = byte(i)
	}
	if err := unix.Mprotect(b[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return uint64(uintptr(unsafe.Pointer(&b[0]))), page
}

func TestReadIsWholeOrAnError(t *testing.T) {
	address, page := mapPages(t)
	b := make([]byte, 16)
	if err := Read(os.Getpid(), b, address+256+3); err != nil || b[0] != 3 || b[15] != 18 {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
			t.Skip(err)
		}
		t.Errorf("got % x, %v", b, err)
	}
	for _, at := range []uint64{8, address + uint64(page) - 8, address + uint64(page), 1<<64 - 8} {
		if err := Read(os.Getpid(), b, at); err != unix.EFAULT {
			t.Errorf("at %#x: got %v", at, err)
		}
	}
	if err := Read(os.Getpid(), nil, 8); err != nil {
		t.Errorf("no bytes: got %v", err)
	}
}

func TestGatherEndsWhereMemoryCannotBeRead(t *testing.T) {
	address, page := mapPages(t)
	b := make([]byte, 3*8)
	ranges := []unix.RemoteIovec{
		{Base: uintptr(address) + 8, Len: 8}, {Base: uintptr(address) + uintptr(page), Len: 8}, {Base: uintptr(address), Len: 8},
	}
	n, err := Gather(os.Getpid(), b, ranges)
	if err == unix.EPERM || err == unix.ENOSYS {
		t.Skip(err)
	}
	if n != 8 || err != nil || b[0] != 8 || b[7] != 15 {
		t.Errorf("got %d bytes, % x, %v", n, b, err)
	}
	if err := GatherAll(os.Getpid(), b, ranges); err != unix.EFAULT {
		t.Errorf("got %v", err)
	}
	if n, err := Gather(os.Getpid(), b, ranges[1:2]); n > 0 || err != unix.EFAULT {
		t.Errorf("got %d bytes, %v", n, err)
	}
}

func TestGatherAllTakesManyRanges(t *testing.T) {
	address, page := mapPages(t)
	const count = 2*maxRanges + 3
	var want []byte
	var ranges []unix.RemoteIovec
	for i := range count {
		at := uint64(i % (page - 2))
		ranges = append(ranges, unix.RemoteIovec{Base: uintptr(address + at), Len: 2})
		want = append(want, byte(at), byte(at+1))
	}
	b := make([]byte, len(want))
	err := GatherAll(os.Getpid(), b, ranges)
	if err == unix.EPERM || err == unix.ENOSYS {
		t.Skip(err)
	}
	if err != nil || !bytes.Equal(b, want) {
		t.Errorf("got % x, %v, want % x", b, err, want)
	}
}

func TestProcessThatHasEnded(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Skip(err)
	}
	if err := Read(cmd.Process.Pid, make([]byte, 8), 4096); err != unix.ESRCH {
		t.Errorf("got %v", err)
	}
}
