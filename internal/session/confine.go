// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/nvml"
	"github.com/vramprof/vramprof/tracer/sandbox"
)

// Tracing is what a session needs until its end, because it also probes processes that start later.
// CAP_IPC_LOCK is for the rings of CPUs that come online later, besides those of other programs of
// this user.
var (
	Tracing = sandbox.NewSet(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_IPC_LOCK)

	// reading is what reading processes needs: memory, files, and mapped files whatever their names
	// lead to now.
	reading = sandbox.NewSet(unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH)

	admin    = sandbox.NewSet(unix.CAP_SYS_ADMIN)
	override = sandbox.NewSet(unix.CAP_DAC_OVERRIDE)
)

// confine drops privileges that are no longer needed once the probes are set, the command runs and
// NVML is open. If that fails, tracing goes on.
func (s *Session) confine() {
	held, err := sandbox.Effective()
	needs := sandbox.Needs{Capabilities: s.keep(held), Programs: features.HaveBPFLinkUprobeMulti() != nil, Terminal: s.Screen}
	if err == nil {
		err = sandbox.Process(needs)
	}
	if err != nil && s.Trace.Note != nil {
		s.Trace.Note(fmt.Sprintf("cannot drop privileges: %v", err))
	}
}

// keep returns which of the held capabilities stay.
func (s *Session) keep(held sandbox.Set) sandbox.Set {
	keep := Tracing
	if len(s.Trace.Command) > 0 {
		keep |= sandbox.NewSet(unix.CAP_KILL) // its children may change their user
	}
	if features.HaveBPFLinkUprobeMulti() != nil { // perf events
		keep |= admin
	}
	return keepFor(held, keep, s.driver, s.Writes, s.Force)
}

// replaceable are the capabilities that CAP_SYS_ADMIN has, too.
var replaceable = sandbox.NewSet(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE)

// keepFor adds to the capabilities that a command needs those that replace missing ones, and what
// the driver, which may be nil, and the results need. It returns those of them that are held.
func keepFor(held, keep sandbox.Set, driver *nvml.Driver, writes []string, force bool) sandbox.Set {
	// NVIDIA's driver requires CAP_SYS_ADMIN for processes on a divided GPU (MIG).
	if !held.Has(keep&replaceable) || dividesGPUs(driver) {
		keep |= admin
	}
	if !held.Has(sandbox.NewSet(unix.CAP_DAC_READ_SEARCH)) {
		keep |= override
	}
	for _, path := range writes {
		if !sandbox.CanWrite(filepath.Dir(path), override) { // root writes into the folder of another user
			keep |= override
		}
		if force && isOthers(path) {
			keep |= sandbox.NewSet(unix.CAP_FOWNER)
		}
	}
	return keep & held
}

// Reading is a command that reads processes and traces nothing.
type Reading struct {
	Driver   *nvml.Driver // is open; nil: is not asked
	Compares bool         // compares open files of processes
	Writes   []string     // as in Config
	Force    bool         // likewise
}

// Confine drops the privileges that the command does not need any more, before it reads anything of
// a process: what it connects to, asks and writes is open by then. After an error, the command can
// go on.
func (r Reading) Confine() error {
	held, err := sandbox.Effective()
	if err != nil {
		return err
	}
	return sandbox.Process(sandbox.Needs{Capabilities: keepFor(held, reading, r.Driver, r.Writes, r.Force), Compares: r.Compares})
}

// isOthers reports whether a file belongs to another user and its folder lets only the owner
// replace it, like /tmp.
func isOthers(path string) bool {
	var file, dir unix.Stat_t
	return unix.Lstat(path, &file) == nil && unix.Stat(filepath.Dir(path), &dir) == nil &&
		dir.Mode&unix.S_ISVTX != 0 && int(file.Uid) != os.Geteuid() && int(dir.Uid) != os.Geteuid()
}

func dividesGPUs(driver *nvml.Driver) bool {
	if driver == nil {
		return false
	}
	// As long as the driver may take to open: after a call that timed out, it answers no other.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	gpus, err := driver.GPUs(ctx)
	for _, gpu := range gpus {
		if gpu.Parent != "" {
			return true
		}
	}
	return err != nil // unknown: assume so
}

// ConfineGuardian drops all privileges of the guardian process that it does not need to resume
// stopped processes.
func ConfineGuardian() {
	held, err := sandbox.Effective()
	if err != nil {
		return
	}
	keep := sandbox.NewSet(unix.CAP_BPF, unix.CAP_KILL)
	if !held.Has(sandbox.NewSet(unix.CAP_BPF)) {
		keep |= admin
	}
	_ = sandbox.Process(sandbox.Needs{Capabilities: keep & held}) // the guardian also works unconfined
}

// ConfineUntilOpen drops privileges that are not needed to open a session later.
func ConfineUntilOpen() error {
	held, err := sandbox.Effective()
	if err != nil {
		return nil
	}
	return sandbox.Process(sandbox.Needs{Capabilities: held & (Tracing | admin | override | sandbox.NewSet(unix.CAP_SYS_RESOURCE)), BPF: true})
}
