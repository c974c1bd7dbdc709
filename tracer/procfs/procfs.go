// SPDX-License-Identifier: Apache-2.0

// Package procfs reads /proc/PID. Names, arguments, paths and environments that it returns are the
// process's to choose: they are untrusted. Any goroutine may call any function. CommandLine, Names
// and Environ read memory of the process, and take up to 0.5 s if the process stalls its readers:
// see Call; what opens files below its root takes as long as untrusted.OpenIn.
package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/procmem"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// memoryPatience is how long reading a file may take that a process can stall; see stallable.
const memoryPatience = 500 * time.Millisecond

// stallable are the files whose reads need the mappings or the memory of the process, so that it
// can stall them. The kernel itself holds the others.
var stallable = map[string]bool{
	"cmdline": true, "environ": true, "maps": true, "smaps": true, "numa_maps": true, "pagemap": true, "mem": true,
}

// Read returns at most limit bytes of a file of /proc/PID, none if the process is gone, does not
// let the file be read or stalls it.
func Read(pid uint32, name string, limit int) []byte {
	if !stallable[name] {
		text, _ := ReadWaiting(pid, name, limit)
		return text
	}
	text, _ := Call(pid, memoryPatience, func() ([]byte, error) { return ReadWaiting(pid, name, limit) })
	return text
}

// ReadWaiting is Read without a limit of time, for use in a Call.
func ReadWaiting(pid uint32, name string, limit int) ([]byte, error) {
	text, err := readFile(pid, name, limit)
	if len(text) == 0 && stallable[name] {
		if thread := Thread(pid); thread != pid {
			return readFile(thread, name, limit)
		}
	}
	return text, err
}

// Thread returns the id under which /proc has the memory of a process, see procmem.Thread.
func Thread(pid uint32) uint32 { return uint32(procmem.Thread(int(pid))) }

func readFile(pid uint32, name string, limit int) ([]byte, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(limit)))
}

// PIDs lists the processes that run, in ascending order.
func PIDs() ([]uint32, error) {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []uint32
	for _, name := range names {
		if pid, err := strconv.ParseUint(name, 10, 32); err == nil {
			pids = append(pids, uint32(pid))
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// Hides reports whether /proc hides processes from this user, as with the option hidepid: each pid
// namespace has a process 1.
func Hides() bool { return hides("/proc") }

func hides(root string) bool {
	_, err := os.Stat(filepath.Join(root, "1"))
	return errors.Is(err, os.ErrNotExist)
}

// MayReadAll reports whether this process may read all others as far as privileges go: it has
// CAP_SYS_PTRACE in the first user namespace.
func MayReadAll() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	users, _ := os.ReadFile("/proc/self/uid_map")
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0 &&
		slices.Equal(strings.Fields(string(users)), []string{"0", "0", "4294967295"})
}

// Exists reports whether a process has the pid, if only a zombie.
func Exists(pid uint32) bool { return unix.Kill(int(pid), 0) != unix.ESRCH }

// HasThread reports whether a process has a thread, if only one that has ended.
func HasThread(pid, tid uint32) bool { return unix.Tgkill(int(pid), int(tid), 0) != unix.ESRCH }

// Comm returns the name of a process, at most 15 bytes.
func Comm(pid uint32) string { return strings.TrimSuffix(string(Read(pid, "comm", 64)), "\n") }

// Exe returns the path of the program that a process runs, "" if it cannot be read.
func Exe(pid uint32) string {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if errors.Is(err, os.ErrNotExist) {
		exe, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", Thread(pid)))
	}
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(exe, " (deleted)")
}

// Environ returns the environment with which a process was started, at most 1 MiB of it.
func Environ(pid uint32) []string {
	return strings.Split(string(bytes.TrimSuffix(Read(pid, "environ", 1<<20), []byte{0})), "\x00")
}

// CommandLine returns the arguments of a process with blanks between them, or its name if it has
// none.
func CommandLine(pid uint32) string {
	if line := strings.TrimRight(strings.ReplaceAll(string(Read(pid, "cmdline", 4096)), "\x00", " "), " "); line != "" {
		return line
	}
	return Comm(pid)
}

// Names returns what --name is matched against, a line each: the name of a process, and the base
// names of its program and of its first argument (the script, for an interpreter).
func Names(pid uint32) string {
	return joinNames(Comm(pid), string(Read(pid, "cmdline", 64<<10)))
}

func joinNames(comm, cmdline string) string {
	list := []string{comm}
	for i, arg := range strings.SplitN(cmdline, "\x00", 3) {
		if i == 2 {
			break
		}
		if arg != "" {
			list = append(list, filepath.Base(arg))
		}
	}
	return strings.Join(list, "\n")
}

// User returns the user of a process as ledger.Process has it.
func User(pid uint32) uint32 {
	status, _ := ReadWaiting(pid, "status", 4096) // the kernel itself holds it
	return parseUser(string(status))
}

// parseUser finds the real user in "Uid:  1000    1000    1000    1000" of /proc/PID/status: the
// effective one may be that of the program.
func parseUser(status string) uint32 {
	for line := range strings.Lines(status) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Uid:" {
			if uid, err := strconv.ParseUint(fields[1], 10, 32); err == nil && uid < ledger.NoUser-1 {
				return uint32(uid) + 1
			}
		}
	}
	return ledger.NoUser
}

// Parent returns the pid of the parent of a process, 0 if it has none or is gone.
func Parent(pid uint32) uint32 {
	status, _ := ReadWaiting(pid, "status", 4096) // the kernel itself holds it
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "PPid:" {
			parent, _ := strconv.ParseUint(fields[1], 10, 32)
			return uint32(parent)
		}
	}
	return 0
}

// IsStopped reports whether a signal has stopped a process; a debugger does that in another way.
func IsStopped(pid uint32) bool {
	stat, _ := ReadWaiting(pid, "stat", 4096) // the kernel itself holds it
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T "))
}

// StartTicks returns when a process was started, in clock ticks since boot, and 0 for one that is
// gone. It never changes: together with the pid it identifies a process.
func StartTicks(pid uint32) uint64 {
	stat, _ := ReadWaiting(pid, "stat", 4096) // the kernel itself holds it
	return parseTicks(string(stat))
}

// parseTicks finds field 22 of /proc/PID/stat, after a name in parentheses that may contain
// anything.
func parseTicks(text string) uint64 {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0
	}
	ticks, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0
	}
	return ticks
}

// StartTime returns when a process was started, in ns of CLOCK_MONOTONIC, and 0 for one that is
// gone. It is right to 10 ms, and differs a little from call to call.
func StartTime(pid uint32) uint64 {
	ticks := StartTicks(pid)
	var boot, monotonic unix.Timespec // they differ by the time spent in suspend
	if ticks == 0 || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic) != nil {
		return 0
	}
	return uint64(max(0, int64(ticks*10_000_000)-(boot.Nano()-monotonic.Nano())-clock.Offset()))
}

// IsGone reports whether a process that ran at a time, in ns of CLOCK_MONOTONIC, has ended; another
// one may have its pid by now.
func IsGone(pid uint32, at uint64) bool {
	const uncertain = 20e6 // of StartTime
	start := StartTime(pid)
	return start == 0 || at != 0 && start > at+uncertain
}
