// SPDX-License-Identifier: Apache-2.0

package gpuprocs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vramprof/vramprof/tracer/procfs"
)

// Limits of one scan.
const (
	maxProcesses   = 1 << 17
	maxDescriptors = 1 << 14 // of a process, from the lowest on
	maxThreads     = 1 << 10 // of a defunct leader
	maxBuffers     = 1 << 10 // of a process
	maxMaps        = 16 << 20
	maxText        = 64 << 10 // of a file of /proc that the kernel itself writes
)

// scanner reads a /proc.
type scanner struct {
	root string // "/proc", or an imitation in tests
	own  uint32
	uvm  uint32 // major number of nvidia-uvm; 0: not loaded
}

func newScanner(root string) (*scanner, error) {
	s := &scanner{root: root, own: uint32(os.Getpid())}
	text, err := readLimited(filepath.Join(root, "devices"), maxText)
	if err != nil {
		return nil, err
	}
	s.uvm = majorOf(string(text), "nvidia-uvm")
	return s, nil
}

func (s *scanner) path(pid uint32, name string) string {
	return filepath.Join(s.root, strconv.FormatUint(uint64(pid), 10), name)
}

// patience is how long a look at what a process can stall may take.
const patience = 500 * time.Millisecond

func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// majorOf finds the major number of character devices in /proc/devices: "511 nvidia-uvm".
func majorOf(devices, name string) uint32 {
	for line := range strings.Lines(devices) {
		f := strings.Fields(line)
		if len(f) > 0 && f[0] == "Block" {
			break
		}
		if len(f) == 2 && f[1] == name {
			major, _ := strconv.ParseUint(f[0], 10, 32)
			return uint32(major)
		}
	}
	return 0
}

// stat is what /proc/PID/stat says.
type stat struct {
	state                  byte
	parent, group, session uint32
	terminal               bool // it has a controlling terminal
}

// isKernel reports whether it is a thread of the kernel: it is kthreadd or its child.
func (s stat) isKernel() bool { return s.group == 0 && s.session == 0 }

func (s *scanner) stat(pid, thread uint32) (stat, bool) {
	name := "stat"
	if thread != pid {
		name = fmt.Sprintf("task/%d/stat", thread)
	}
	text, err := readLimited(s.path(pid, name), 4096)
	if err != nil {
		return stat{}, false
	}
	return parseStat(string(text))
}

// parseStat parses "42 (a name) S 1 42 42 34816 …". The name may contain anything.
func parseStat(text string) (st stat, ok bool) {
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 4 || len(f[0]) != 1 || !strings.Contains(text, ")") {
		return st, false
	}
	st.state = f[0][0]
	for i, to := range []*uint32{&st.parent, &st.group, &st.session} {
		n, err := strconv.ParseUint(f[i+1], 10, 32)
		if err != nil {
			return st, false
		}
		*to = uint32(n)
	}
	st.terminal = len(f) > 4 && f[4] != "0"
	return st, true
}

// innerID returns the pid of a process in its innermost pid namespace.
func (s *scanner) innerID(pid uint32) uint32 {
	text, _ := readLimited(s.path(pid, "status"), maxText)
	return parseInner(string(text), pid)
}

// parseInner finds the last number in "NSpid:  4711  7" of /proc/PID/status.
func parseInner(status string, pid uint32) uint32 {
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, "NSpid:")
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		if len(f) == 0 {
			break
		}
		if n, err := strconv.ParseUint(f[len(f)-1], 10, 32); err == nil {
			return uint32(n)
		}
	}
	return pid
}

// livingThreads counts the threads of a defunct leader that run, and returns one of them.
func (s *scanner) livingThreads(pid uint32) (n int, one uint32) {
	folder, err := os.Open(s.path(pid, "task"))
	if err != nil {
		return 0, 0
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(maxThreads)
	for _, name := range names {
		thread, err := strconv.ParseUint(name, 10, 32)
		if err != nil || uint32(thread) == pid {
			continue
		}
		if st, ok := s.stat(pid, uint32(thread)); ok && st.state != 'Z' && st.state != 'X' {
			if n++; one == 0 || uint32(thread) < one {
				one = uint32(thread)
			}
		}
	}
	return n, one
}

func exeOf(link string) string {
	exe, err := os.Readlink(link)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(exe, " (deleted)")
}

// commandOf returns the arguments of a thread's process, with blanks between them.
func (s *scanner) commandOf(pid uint32, folder string) string {
	text, _ := procfs.Call(pid, patience, func() ([]byte, error) {
		return readLimited(filepath.Join(s.root, folder, "cmdline"), 4096)
	})
	return joinArguments(text)
}

func joinArguments(text []byte) string {
	return strings.TrimRight(strings.ReplaceAll(string(text), "\x00", " "), " ")
}
