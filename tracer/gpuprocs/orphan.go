// SPDX-License-Identifier: Apache-2.0

package gpuprocs

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/tracer/procfs"
)

// Worker is what an orphan was for, by its name or its arguments, which a process can choose.
type Worker int

// The kinds of workers.
const (
	NoWorker        Worker = iota // unknown: neither its name nor its arguments say so
	TorchWorker                   // named pt_data_worker, as PyTorch 2.6 and later name workers of a DataLoader
	SpawnedWorker                 // its arguments are those of multiprocessing's spawn
	ForkServer                    // likewise, of its fork server, or one that it forked
	ResourceTracker               // likewise, of its tracker of semaphores and shared memory
)

// Clue is how a former parent is known.
type Clue int

// The clues, best first.
const (
	NoClue        Clue = iota
	ByEnvironment      // a launcher wrote its pid into the environment: of an ancestor, not always the parent
	ByGroup            // it leads the process group, which children inherit: an ancestor
	BySession          // likewise, the session
)

// Orphan is a process whose parent has ended: a reaper is its parent now.
type Orphan struct {
	Worker Worker
	Clue   Clue
	Former uint32 // pid of the former parent, or of an earlier ancestor: see Clue; 0 without one
	Lives  bool   // a process with that pid exists, and still leads the group or session
	Name   string // of that process if it lives, untrusted
	// Its own arguments are those of its parent, because it was forked and has not executed a
	// program since: that is only so for a TorchWorker.
	Forked bool
}

// orphan returns what is known of a process that has lost its parent, nil for any other. A child
// inherits its parent's session, so one whose parent is of another session, and that did not begin
// its own, was handed to a reaper: init, or a process that asked for orphans. In a container all
// may be one session. There, what init did not start has the process group of a former ancestor.
// But a shell with a terminal also puts "a | b" into a's group: below such an init only a worker
// that is known by its name, and whose group's leader has ended, is one.
func (s *scanner) orphan(pid uint32, folder string, st stat) *Orphan {
	if st.session == pid || st.group == 0 {
		return nil // a daemon, or what a service manager or shell has started
	}
	parent, ok := s.stat(st.parent, st.parent)
	if !ok {
		return nil // a parent that this pid namespace does not show
	}
	worker := workerOf(s.comm(pid, folder), s.arguments(pid, folder))
	if parent.session == st.session {
		if s.innerID(st.parent) != 1 || st.group == pid || st.group == parent.group {
			return nil
		}
		if parent.terminal && (worker == NoWorker || s.leads(st.group, st.group, st.session)) {
			return nil
		}
	}
	o := &Orphan{Worker: worker}
	o.Forked = worker == TorchWorker
	s.former(o, pid, folder, st)
	return o
}

// leads reports whether a process lives that has that group and session.
func (s *scanner) leads(pid, group, session uint32) bool {
	st, ok := s.stat(pid, pid)
	return ok && st.state != 'Z' && st.group == group && st.session == session
}

// former looks for the former parent.
func (s *scanner) former(o *Orphan, pid uint32, folder string, st stat) {
	for _, c := range []struct {
		clue  Clue
		pid   uint32
		lives func(uint32) bool
	}{
		{ByEnvironment, s.launcher(pid, folder), func(f uint32) bool { x, ok := s.stat(f, f); return ok && x.state != 'Z' }},
		{ByGroup, st.group, func(f uint32) bool { return s.leads(f, st.group, st.session) }},
		{BySession, st.session, func(f uint32) bool { x, ok := s.stat(f, f); return ok && x.state != 'Z' && x.session == f }},
	} {
		if c.pid == 0 || c.pid == pid || c.pid == st.parent {
			continue
		}
		o.Clue, o.Former, o.Lives = c.clue, c.pid, c.lives(c.pid)
		if o.Lives {
			o.Name = s.comm(c.pid, strconv.FormatUint(uint64(c.pid), 10))
		}
		return
	}
}

// launchers are variables in which launchers write their pid, or that of a job's first process.
var launchers = []string{"SLURM_TASK_PID", "JPY_PARENT_PID"}

// launcher returns the pid that a launcher wrote into the environment of a process, 0 without one.
// It is a pid of the launcher's namespace, so that it counts only for a process outside of any
// other.
func (s *scanner) launcher(pid uint32, folder string) uint32 {
	if s.innerID(pid) != pid {
		return 0
	}
	text, _ := procfs.Call(pid, patience, func() ([]byte, error) {
		return readLimited(filepath.Join(s.root, folder, "environ"), 1<<20)
	})
	for _, name := range launchers {
		for v := range bytes.SplitSeq(text, []byte{0}) {
			if value, ok := bytes.CutPrefix(v, []byte(name+"=")); ok {
				if n, err := strconv.ParseUint(string(value), 10, 31); err == nil {
					return uint32(n)
				}
			}
		}
	}
	return 0
}

func (s *scanner) comm(pid uint32, folder string) string {
	text, _ := readLimited(filepath.Join(s.root, folder, "comm"), 64)
	return strings.TrimSuffix(string(text), "\n")
}

func (s *scanner) arguments(pid uint32, folder string) []string {
	text, _ := procfs.Call(pid, patience, func() ([]byte, error) {
		return readLimited(filepath.Join(s.root, folder, "cmdline"), maxText)
	})
	return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
}

// workerOf names a worker: "python3 -c 'from multiprocessing.spawn import spawn_main; …'
// --multiprocessing-fork".
func workerOf(comm string, arguments []string) Worker {
	if comm == "pt_data_worker" {
		return TorchWorker
	}
	for i, a := range arguments {
		if a != "-c" || i+1 == len(arguments) {
			continue
		}
		if f := strings.Fields(arguments[i+1]); len(f) > 1 && f[0] == "from" {
			return workerModules[f[1]]
		}
	}
	return NoWorker
}

// workerModules are the modules whose function the interpreter of a worker is told to import.
var workerModules = map[string]Worker{
	"multiprocessing.spawn": SpawnedWorker, "multiprocessing.forkserver": ForkServer, "multiprocessing.resource_tracker": ResourceTracker,
}

// String returns "process group 42" for errors and tests.
func (c Clue) String() string {
	switch c {
	case ByEnvironment:
		return "environment"
	case ByGroup:
		return "process group"
	case BySession:
		return "session"
	}
	return fmt.Sprintf("clue %d", int(c))
}
