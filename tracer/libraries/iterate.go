// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// iterateProcess runs an iterator over the tasks of one process and has take read its output. It
// makes the system calls itself because cilium/ebpf has no iterators over one process
// (bpf_iter_link_info.task, Linux 6.1, commit f0d74c4da1f0).
func iterateProcess(program *ebpf.Program, pid uint32, take func(io.Reader) error) error {
	info := struct{ tid, pid, pidfd, unused uint32 }{pid: pid}
	create := struct {
		program, target, kind, flags uint32
		info                         uint64
		size                         uint32
		unused                       [5]uint32
	}{program: uint32(program.FD()), kind: uint32(ebpf.AttachTraceIter), info: uint64(uintptr(unsafe.Pointer(&info))), size: uint32(unsafe.Sizeof(info))}
	link, err := bpfCall(unix.BPF_LINK_CREATE, unsafe.Pointer(&create), unsafe.Sizeof(create))
	runtime.KeepAlive(&info)
	runtime.KeepAlive(program)
	if err != nil {
		return fmt.Errorf("attach the iterator over the mappings of process %d: %w", pid, err)
	}
	defer unix.Close(link)
	open := struct{ link, flags uint32 }{link: uint32(link)}
	fd, err := bpfCall(unix.BPF_ITER_CREATE, unsafe.Pointer(&open), unsafe.Sizeof(open))
	if err != nil {
		return fmt.Errorf("open the iterator over the mappings of process %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "bpf_iter")
	defer f.Close()
	return take(whole{f})
}

// whole reads an iterator that has written nothing about the last million of mappings, too.
type whole struct{ io.Reader }

func (w whole) Read(p []byte) (int, error) {
	for {
		if n, err := w.Reader.Read(p); !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
}

func bpfCall(command int, attributes unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attributes), size)
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}
