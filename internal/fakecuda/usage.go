// SPDX-License-Identifier: Apache-2.0

package fakecuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Layout of the shared file, as defined in testdata/fakecuda/books.h.
const (
	shmVariable  = "FAKECUDA_SHM"
	magic        = 0x32306164756b6166
	headerBytes  = 64
	gpuBytes     = 192
	maxGPUs      = 16
	maxProcesses = 512
	processBytes = 128
	slotBytes    = processBytes + gpuBytes*maxGPUs
)

// Count is a number of allocations and the sum of their requested sizes.
type Count struct {
	Objects, Bytes uint64
}

// GPU is what one process holds on one physical GPU.
type GPU struct {
	Usage   uint64 // bytes that NVML reports: context and whole 2 MiB pages
	Context uint64 // the part of Usage that exists before any allocation
	Device  Count  // live, including pitched memory
	Managed Count  // live; not in Usage
	Total   Count  // device and managed, since start

	Async         Count  // live, from pools
	PoolReserved  uint64 // the part of Usage that pools hold, both used and reserved
	VMM           Count  // physical memory of cuMemCreate that is referenced or mapped
	Array         Count  // live, including mipmaps; bytes as described by the descriptor
	Imported      Count  // memory of other processes and APIs that this process has opened; not in Usage
	Graph         Count  // alloc nodes not freed by anything, launched or not
	GraphReserved uint64 // the part of Usage that launched graphs hold
}

// Process is one process of the simulated machine.
type Process struct {
	PID         uint32 // in the caller's PID namespace; for an exited process, in its own
	Ended       bool   // Usage is invalid; the counts are the last ones
	Pinned      Count  // live
	PinnedTotal Count  // since start
	Registered  Count  // live
	VMMHost     Count  // live host memory of cuMemCreate
	GPUs        []GPU  // by physical index
}

// ReadUsage reads the books of the simulated machine in env (from Dir.Env). It returns every
// process that called cuInit, in that order, including exited ones. A machine without such a
// process has none.
func ReadUsage(env []string) ([]Process, error) {
	path := ""
	for _, v := range env {
		if after, ok := strings.CutPrefix(v, shmVariable+"="); ok {
			path = after
		}
	}
	if path == "" {
		return nil, errors.New("no " + shmVariable + " in the environment")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, headerBytes+slotBytes*maxProcesses)
	if n, err := f.ReadAt(b, 0); n == 0 {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
	gpus, high := word(8), word(24)
	if word(0) != magic || gpus > maxGPUs || high > maxProcesses {
		return nil, fmt.Errorf("read %s: not the books of a fake CUDA", path)
	}
	var processes []Process
	for i := range int(high) {
		at := headerBytes + i*slotBytes
		if word(at) == 0 {
			continue
		}
		p, err := owner(f, int64(at))
		if err != nil {
			return nil, err
		}
		processes = append(processes, decode(word, at, int(gpus), p))
	}
	return processes, nil
}

func decode(word func(int) uint64, at, gpus int, pid uint32) Process {
	p := Process{
		PID:         pid,
		Ended:       pid == 0,
		Pinned:      Count{Bytes: word(at + 16), Objects: word(at + 24)},
		PinnedTotal: Count{Bytes: word(at + 32), Objects: word(at + 40)},
		Registered:  Count{Bytes: word(at + 48), Objects: word(at + 56)},
		VMMHost:     Count{Bytes: word(at + 64), Objects: word(at + 72)},
	}
	if p.Ended {
		p.PID = uint32(word(at))
	}
	for g := range gpus {
		at := at + processBytes + g*gpuBytes
		count := func(offset int) Count { return Count{Bytes: word(at + offset), Objects: word(at + offset + 8)} }
		p.GPUs = append(p.GPUs, GPU{
			Usage:         word(at) + word(at+8),
			Context:       word(at),
			Device:        count(16),
			Managed:       count(32),
			Total:         count(48),
			Async:         count(64),
			PoolReserved:  word(at + 80),
			GraphReserved: word(at + 88),
			VMM:           count(96),
			Array:         count(112),
			Imported:      count(128),
			Graph:         count(144),
		})
	}
	return p
}

// owner returns the pid of the process that holds a slot's lock, or 0 if nobody does. The kernel
// releases the lock when the process exits, and translates the pid into the caller's namespace.
func owner(f *os.File, at int64) (uint32, error) {
	l := syscall.Flock_t{Type: syscall.F_WRLCK, Start: at, Len: 1}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &l); err != nil {
		return 0, fmt.Errorf("query lock of %s: %w", f.Name(), err)
	}
	if l.Type == syscall.F_UNLCK || l.Pid < 0 {
		return 0, nil
	}
	return uint32(l.Pid), nil
}
