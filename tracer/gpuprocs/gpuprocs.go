// SPDX-License-Identifier: Apache-2.0

// Package gpuprocs finds the processes that keep an NVIDIA GPU or its memory, by what the kernel
// shows of them: open device files and dma-bufs, defunct leaders whose threads live, MPS servers.
// It sets no probes and asks no driver. It returns facts, as codes and figures.
//
// Names of files are the processes' to choose; devices are told by their numbers.
package gpuprocs

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Process is a process that keeps a GPU or its memory.
type Process struct {
	PID     uint32
	InnerID uint32   // its pid in its innermost pid namespace; PID outside of any
	GPUs    []uint32 // minor numbers of the GPUs whose device files are open, in order: /dev/nvidia0 is 0
	Control bool     // /dev/nvidiactl is open
	UVM     bool     // /dev/nvidia-uvm is open
	Role    Role
	Exe     string    // untrusted; "" if it is unknown
	Buffers []Buffer  // dma-bufs that it has open or mapped, by inode
	Passed  []Passed  // descriptors of /dev/nvidiactl that others have too
	Threads int       // of a defunct leader: its threads that live, at most 1024; 0 for any other process
	Command string    // of a defunct leader with living threads: theirs, untrusted
	Orphan  *Orphan   // its parent has ended; nil if it has not, or if that is unknown
	Parent  uint32    // its parent now
	IDs     [2]uint32 // its process group and its session
	State   byte      // of its leader: 'S', 'D', 'Z', …; 0 if it is unknown

	controls []int // descriptors of /dev/nvidiactl
}

// Opens reports whether the process has a device file of the driver open.
func (p *Process) Opens() bool { return len(p.GPUs) > 0 || p.Control || p.UVM }

// Scan looks at all processes but this one, and returns those that keep a GPU or its memory, by
// pid. Processes of other users need CAP_SYS_PTRACE: without, they are left out. A process can
// delay it by 0.5 s.
func Scan() ([]Process, error) {
	s, err := newScanner("/proc")
	if err != nil {
		return nil, err
	}
	return s.scan()
}

func (s *scanner) scan() ([]Process, error) {
	folder, err := os.Open(s.root)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []Process
	for _, name := range names {
		pid, err := strconv.ParseUint(name, 10, 32)
		if err != nil || uint32(pid) == s.own {
			continue
		}
		st, ok := s.stat(uint32(pid), uint32(pid))
		if !ok || st.isKernel() {
			continue
		}
		if p := s.look(uint32(pid), st); p.keeps() {
			list = append(list, p)
		}
		if len(list) == maxProcesses {
			break
		}
	}
	slices.SortFunc(list, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	findPassed(list)
	return list, nil
}

// keeps reports whether the process is one to list.
func (p *Process) keeps() bool { return p.Opens() || len(p.Buffers) > 0 || p.Role != Client }

// look reads what is known of a process.
func (s *scanner) look(pid uint32, st stat) Process {
	p := Process{PID: pid, InnerID: s.innerID(pid), State: st.state, Parent: st.parent, IDs: [2]uint32{st.group, st.session}}
	thread := pid
	if st.state == 'Z' {
		// The leader has exited, so its memory and descriptors are only those of its threads.
		p.Threads, thread = s.livingThreads(pid)
		if p.Threads == 0 {
			return p
		}
	}
	folder := strconv.FormatUint(uint64(pid), 10)
	if thread != pid {
		folder = filepath.Join(folder, "task", strconv.FormatUint(uint64(thread), 10))
	}
	d := s.descriptors(pid, filepath.Join(s.root, folder))
	p.GPUs, p.Control, p.UVM, p.Buffers, p.controls = d.gpus, len(d.controls) > 0, d.uvm, d.buffers, d.controls
	p.Exe = exeOf(filepath.Join(s.root, folder, "exe"))
	p.Role = roleOf(p.Exe, p.Opens())
	if !p.keeps() {
		return p
	}
	if p.Threads > 0 {
		p.controls = nil // the leader has none any more
		p.Command = s.commandOf(pid, folder)
	}
	p.Orphan = s.orphan(pid, folder, st)
	return p
}
