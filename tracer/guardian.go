// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
)

// The hidden first arguments of our own program, see RunHidden.
const (
	heldCommand     = "exec-when-followed" // COMMAND ARGUMENTS
	guardianCommand = "release-when-orphaned"
)

// RunHidden does not return if a Tracer started this process: then it becomes the command, or the
// guardian. A program that uses Config.Command calls it first in main.
func RunHidden(args []string) {
	if len(args) < 2 {
		return
	}
	var err error
	switch {
	case args[1] == heldCommand && len(args) > 2:
		err = becomeCommand(args[2:])
	case IsGuardian(args):
		err = guard()
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vramprof:", err)
		os.Exit(127)
	}
	os.Exit(0)
}

// IsGuardian reports whether RunHidden will watch over held processes, which
// takes CAP_BPF and CAP_KILL alone, and starts nothing.
func IsGuardian(args []string) bool { return len(args) == 2 && args[1] == guardianCommand }

// guardian is a process that continues the stopped processes of the command if the tracer dies. It
// knows them from the kernel's list.
type guardian struct {
	cmd  *exec.Cmd
	pipe *os.File
}

func startGuardian(processes *ebpf.Map) (*guardian, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the guardian: %w", err)
	}
	fd, err := unix.FcntlInt(uintptr(processes.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start the guardian: %w", err)
	}
	shared := os.NewFile(uintptr(fd), "processes")
	defer shared.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the guardian: %w", err)
	}
	defer read.Close()
	cmd := exec.Command(self, guardianCommand)
	cmd.ExtraFiles = []*os.File{read, shared}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals to our group are not for it
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("start the guardian: %w", err)
	}
	return &guardian{cmd, write}, nil
}

// dismiss ends the guardian; stopped processes were continued before.
func (g *guardian) dismiss() {
	_, _ = g.pipe.Write([]byte{1})
	g.pipe.Close()
	_ = g.cmd.Wait()
}

// guard waits on file descriptor 3. A byte means that all is well; the end of the pipe, that the
// tracer is dead: then it continues the processes of the list in file descriptor 4.
func guard() error {
	if n, _ := os.NewFile(3, "tracer").Read(make([]byte, 1)); n == 1 {
		return nil
	}
	list, err := ebpf.NewMapFromFD(4)
	if err != nil {
		return fmt.Errorf("open the list of processes: %w", err)
	}
	held := releaseAll(list)
	// One that found itself in the list just before may stop only now.
	for range 20 {
		time.Sleep(50 * time.Millisecond)
		for _, pid := range held {
			_ = unix.Kill(int(pid), unix.SIGCONT)
		}
	}
	return nil
}

// releaseAll continues every stopped process of the command. Processes that load libraries from now
// on are not in the list, and are not stopped.
func releaseAll(list *ebpf.Map) (held []uint32) {
	var pid uint32
	var entry bpf.Process
	for i := list.Iterate(); i.Next(&pid, &entry); {
		if entry.Held != 0 {
			held = append(held, pid)
		}
	}
	for _, pid := range held {
		_ = list.Delete(pid)
		_ = unix.Kill(int(pid), unix.SIGCONT)
	}
	return held
}

// becomeCommand waits for a byte on file descriptor 3 and executes args. It returns only errors.
func becomeCommand(args []string) error {
	gate := os.NewFile(3, "gate")
	if n, err := gate.Read(make([]byte, 1)); n != 1 {
		return fmt.Errorf("wait to be followed: %w", err)
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("start %s: %w", args[0], err)
	}
	gate.Close()
	return fmt.Errorf("start %s: %w", args[0], syscall.Exec(path, args, os.Environ()))
}
