// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/userfaultfd.h.
const (
	uffdioAPI      = 0xc018aa3f
	uffdioRegister = 0xc020aa00
	uffdioZeropage = 0xc020aa04
	uffdVersion    = 0xaa
)

// unanswered returns a page whose first access blocks until answer is called.
func unanswered() (page []byte, answer func() error, err error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return nil, nil, errno
	}
	call := func(request uintptr, argument [4]uint64) error {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(&argument))); errno != 0 {
			return errno
		}
		return nil
	}
	if page, err = unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return nil, nil, err
	}
	start, length := uint64(uintptr(unsafe.Pointer(&page[0]))), uint64(len(page))
	const missing = 1
	err = errors.Join(call(uffdioAPI, [4]uint64{uffdVersion}), call(uffdioRegister, [4]uint64{start, length, missing}))
	return page, func() error { return call(uffdioZeropage, [4]uint64{start, length}) }, err
}

// confineHanging confines the process while a thread blocks in a read of another process's memory.
func confineHanging() {
	page, answer, err := unanswered()
	if err != nil {
		fmt.Println("skip", err)
		return
	}
	reader := make(chan int)
	go func() {
		runtime.LockOSThread()
		reader <- unix.Gettid()
		var to [1]byte
		local := []unix.Iovec{{Base: &to[0]}}
		local[0].SetLen(1)
		_, _ = unix.ProcessVMReadv(os.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&page[0])), Len: 1}}, 0)
		reader <- 0
		select {}
	}()
	tid := <-reader
	for state := ""; !strings.HasPrefix(state, " D"); time.Sleep(time.Millisecond) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", tid))
		state = string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	}
	err = Process(Needs{Capabilities: kept})
	fmt.Println("named", err != nil && strings.Contains(err.Error(), fmt.Sprintf("thread %d is blocked", tid)))
	if err := answer(); err != nil {
		fmt.Println("answer", err)
	}
	<-reader
	printThreads()
}

func TestBlockedThreadIsConfinedWhenItReturns(t *testing.T) {
	if os.Geteuid() != 0 || !hasSignals {
		t.Skip("needs root and cgo: without cgo, Process waits for all threads")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(self, hanging).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if why, skip := strings.CutPrefix(lines[0], "skip "); skip {
		t.Skip("no userfaultfd: " + why)
	}
	if lines[0] != "named true" {
		t.Errorf("got %q, want the blocked thread", lines[0])
	}
	for _, line := range lines[1:] {
		if line != "thread "+wanted {
			t.Errorf("%s, want %s", line, wanted)
		}
	}
	if len(lines) < 4 {
		t.Errorf("few threads: %s", out)
	}
}
