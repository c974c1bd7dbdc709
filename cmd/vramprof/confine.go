// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf/features"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/confine"
)

// What tracing goes on needing: processes that begin later are looked into and probed, too. CAP_IPC_LOCK is for
// the rings of CPUs that come later, beside those of other programs of this user.
var (
	tracing = confine.Of(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_IPC_LOCK)

	admin    = confine.Of(unix.CAP_SYS_ADMIN)
	override = confine.Of(unix.CAP_DAC_OVERRIDE)
)

// confine gives up what is not needed any more, now that the probes are set, the command runs and NVML is
// open. Tracing goes on if that fails.
func (s *session) confine(c *cli.Context) {
	held, err := confine.Held()
	needs := confine.Needs{Capabilities: s.keep(held, folders(c), c.Bool("force")), Programs: features.HaveBPFLinkUprobeMulti() != nil}
	if err == nil {
		err = confine.Process(needs)
	}
	if err != nil && s.config.Note != nil {
		s.config.Note(fmt.Sprintf("not confined as it should be: %v", err))
	}
}

// keep says which of the held capabilities stay.
func (s *session) keep(held confine.Set, writes []string, force bool) confine.Set {
	keep := tracing
	if len(s.config.Command) > 0 {
		keep |= confine.Of(unix.CAP_KILL) // its children may change their user
	}
	// It stands in for those that are missing, perf events ask for it, and NVIDIA's driver, for what uses a divided GPU.
	if !held.Has(confine.Of(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE)) ||
		features.HaveBPFLinkUprobeMulti() != nil || s.dividedGPUs() {
		keep |= admin
	}
	if !held.Has(confine.Of(unix.CAP_DAC_READ_SEARCH)) {
		keep |= override
	}
	for _, path := range writes {
		if !confine.CanWrite(filepath.Dir(path), override) { // root in the folder of another user
			keep |= override
		}
		if force && isOthers(path) {
			keep |= confine.Of(unix.CAP_FOWNER)
		}
	}
	return keep & held
}

// folders lists files that are written at the end, or files in the folders in which some may be.
func folders(c *cli.Context) (paths []string) {
	streamed := false
	for _, flag := range []string{"output", "html"} {
		if path := c.String(flag); isStream(path) {
			streamed = true
		} else if path != "" {
			paths = append(paths, path)
		}
	}
	if c.Command.Name != "leaks" && len(paths) == 0 && (!streamed || c.Command.Name == "record") { // which writes records beside it
		paths = append(paths, defaultName(time.Now()))
	}
	if dir := c.String("oom-dir"); dir != "" {
		paths = append(paths, filepath.Join(dir, "record"))
	}
	return paths
}

// isOthers says whether a file belongs to another user, and the folder lets only its owner replace it, as /tmp does.
func isOthers(path string) bool {
	var file, dir unix.Stat_t
	return unix.Lstat(path, &file) == nil && unix.Stat(filepath.Dir(path), &dir) == nil &&
		dir.Mode&unix.S_ISVTX != 0 && int(file.Uid) != os.Geteuid() && int(dir.Uid) != os.Geteuid()
}

func (s *session) dividedGPUs() bool {
	if s.driver == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	gpus, err := s.driver.GPUs(ctx)
	for _, gpu := range gpus {
		if gpu.Parent != "" {
			return true
		}
	}
	return err != nil // nobody knows
}

// confineGuardian leaves our second process what it is for: to let processes go on.
func confineGuardian() {
	held, err := confine.Held()
	if err != nil {
		return
	}
	keep := confine.Of(unix.CAP_BPF, unix.CAP_KILL)
	if !held.Has(confine.Of(unix.CAP_BPF)) {
		keep |= admin
	}
	_ = confine.Process(confine.Needs{Capabilities: keep & held}) // it would work without as well
}
