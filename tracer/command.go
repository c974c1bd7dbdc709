// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// command is the program that Run started.
type command struct {
	cmd    *exec.Cmd
	exited atomic.Bool
	err    error // valid when exited
	guard  *guardian
}

func (c *command) ended() bool { return c.exited.Load() }

// startCommand starts the command so that it stops whenever its dynamic loader has loaded
// libraries; the worker looks at it and lets it go on.
func (t *Tracer) startCommand() error {
	path, err := exec.LookPath(t.config.Command[0])
	if err != nil {
		return fmt.Errorf("start %s: %w", t.config.Command[0], err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	defer write.Close()
	defer read.Close()
	cmd := exec.Command(self, append([]string{heldCommand}, t.config.Command...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = cmp.Or(t.config.Stdin, os.Stdin), cmp.Or(t.config.Stdout, os.Stdout), cmp.Or(t.config.Stderr, os.Stderr)
	cmd.ExtraFiles = []*os.File{read}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	if t.memlock != nil { // the command waits for its byte
		_ = unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_MEMLOCK, t.memlock, nil)
	}
	if mayContinue() {
		t.attachLoaders(path, uint32(cmd.Process.Pid))
	} else {
		t.sequencer.Warn(0, "the command is not held while it loads libraries, its first calls may be missed: CAP_KILL is missing")
	}
	guard, err := startGuardian(t.coll.Maps["processes"])
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	tx := t.sequencer.Begin()
	t.table.Start(tx, uint32(cmd.Process.Pid))
	tx.Done()
	t.command = &command{cmd: cmd, guard: guard}
	go func() {
		t.command.err = cmd.Wait()
		t.command.exited.Store(true)
	}()
	if _, err := write.Write([]byte{1}); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}

// mayContinue reports whether we may send SIGCONT to whatever the command becomes: a child that has
// changed its user, and its session as sudo does, would stay stopped without end.
func mayContinue() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_KILL) != 0
}

// CommandError returns how the command failed; nil while it runs and after success.
func (t *Tracer) CommandError() error {
	if t.command == nil || !t.command.ended() {
		return nil
	}
	return t.command.err
}

// attachLoaders probes the dynamic loaders that the command may use: its own, and the system's,
// which its children most likely use. pid is the process that is to become the command.
func (t *Tracer) attachLoaders(path string, pid uint32) {
	var last error
	for _, loader := range append(loadersOf(path), "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1") {
		f, err := untrusted.OpenRegular(loader)
		if err != nil {
			last = errors.Join(last, err)
			continue
		}
		if err := t.discovery.files.ProbeLoader(f, pid); err != nil {
			last = errors.Join(last, fmt.Errorf("%s: %w", loader, err))
		}
		f.Close()
	}
	if !t.discovery.files.HaveLoaders() {
		t.sequencer.Warn(0, fmt.Sprintf("the command cannot be held while it loads libraries, its first calls may be missed: %v", last))
	}
}

// loadersOf returns the interpreter that a program names, through at most four "#!" lines.
func loadersOf(path string) []string {
	for range 4 {
		f, err := untrusted.OpenRegular(path)
		if err != nil {
			return nil
		}
		head := make([]byte, 256)
		n, _ := f.ReadAt(head, 0)
		if line, ok := strings.CutPrefix(string(head[:n]), "#!"); ok {
			f.Close()
			line, _, _ = strings.Cut(line, "\n")
			words := strings.Fields(line)
			if len(words) == 0 {
				return nil
			}
			path = words[0]
			if strings.HasSuffix(path, "/env") && len(words) > 1 {
				if path, err = exec.LookPath(words[1]); err != nil {
					return nil
				}
			}
			continue
		}
		defer f.Close()
		return interpreterOf(f)
	}
	return nil
}

func interpreterOf(f *os.File) (list []string) {
	defer func() { _ = recover() }() // debug/elf can panic on damaged files
	x, err := elf.NewFile(f)
	if err != nil {
		return nil
	}
	for _, p := range x.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			name := make([]byte, p.Filesz)
			if _, err := p.ReadAt(name, 0); err == nil {
				list = append(list, strings.TrimRight(string(name), "\x00"))
			}
		}
	}
	return list
}
