// SPDX-License-Identifier: Apache-2.0

package gpuprocs

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"
)

// Passed is a descriptor of /dev/nvidiactl that another process has too, and that was not
// inherited. CUDA exports memory (cuMemExportToShareableHandle) as such a descriptor, which holds
// the memory until the last process has closed it.
type Passed struct {
	Others []uint32 // pids of the processes that have it too, in order, at most MaxOthers; this one's is left out
}

// MaxOthers is how many processes are named that have the same descriptor or dma-buf: a process can
// pass one to all of its children.
const MaxOthers = 256

// maxPassed is how many descriptors are compared, of all processes: a CUDA process has some tens.
const maxPassed = 1 << 12

// controlFile is a descriptor of /dev/nvidiactl.
type controlFile struct {
	process int // index into the list of processes
	number  int // of the descriptor
}

// findPassed sets Passed of the processes. A child inherits descriptors by their numbers, so one
// that has the same number in two processes counts as inherited; a passed one may have it too, by
// chance, and is not found then.
func findPassed(list []Process) {
	files := comparable(list)
	known := true
	slices.SortFunc(files, func(a, b controlFile) int {
		if !known || a == b {
			return 0
		}
		order, ok := compareFiles(list[a.process].PID, a.number, list[b.process].PID, b.number)
		known = known && ok
		return order
	})
	if !known { // the kernel does not compare, or a process has ended meanwhile
		return
	}
	for begin := 0; begin < len(files); {
		end := begin + 1
		for ; end < len(files); end++ {
			a, b := files[begin], files[end]
			if order, ok := compareFiles(list[a.process].PID, a.number, list[b.process].PID, b.number); order != 0 || !ok {
				break
			}
		}
		notePassed(list, files[begin:end])
		begin = end
	}
}

// comparable returns the descriptors to compare: of each process in turn one, so that a process
// that has many takes no other one's place.
func comparable(list []Process) (files []controlFile) {
	for turn, more := 0, true; more; turn++ {
		more = false
		for i := range list {
			if turn >= len(list[i].controls) {
				continue
			}
			if len(files) == maxPassed {
				return files
			}
			more = true
			pid, number := list[i].PID, list[i].controls[turn]
			if _, ok := compareFiles(pid, number, pid, number); ok {
				files = append(files, controlFile{i, number})
			}
		}
	}
	return files
}

// notePassed notes descriptors of one open file.
func notePassed(list []Process, files []controlFile) {
	slices.SortFunc(files, func(a, b controlFile) int {
		return cmp.Or(cmp.Compare(a.process, b.process), cmp.Compare(a.number, b.number))
	})
	first := slices.CompactFunc(slices.Clone(files), func(a, b controlFile) bool { return a.process == b.process })
	last := map[int]int{} // highest number of a process
	for _, f := range files {
		last[f.process] = f.number
	}
	for _, f := range files {
		var p Passed
		for _, o := range first {
			if len(p.Others) == MaxOthers {
				break
			}
			if o.process != f.process && (o.number != f.number || last[o.process] != f.number) {
				p.Others = append(p.Others, list[o.process].PID)
			}
		}
		if len(p.Others) > 0 {
			list[f.process].Passed = append(list[f.process].Passed, p)
		}
	}
}

// compareFiles orders the open files behind descriptors of two processes by kcmp, as cmp.Compare;
// 0: they are the same open file. It needs CAP_SYS_PTRACE, as the scan does.
var compareFiles = func(pid1 uint32, fd1 int, pid2 uint32, fd2 int) (order int, ok bool) {
	const kcmpFile = 0
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(pid1), uintptr(pid2), kcmpFile, uintptr(fd1), uintptr(fd2), 0)
	switch {
	case errno != 0 || r > 2: // 3: not equal, without an order
		return cmp.Or(cmp.Compare(pid1, pid2), cmp.Compare(fd1, fd2)), false
	case r == 1:
		return -1, true
	case r == 2:
		return 1, true
	}
	return 0, true
}
