// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/ceiling"
	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/pslist"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/heapscan"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/nvml"
	"github.com/vramprof/vramprof/tracer/preflight"
)

// New checks that this machine can trace and that the selected processes or the command exist.
func New(ctx context.Context, config Config) (*Session, error) {
	env, err := preflight.ReadHost()
	if err != nil {
		return nil, err
	}
	memory, err := ceiling.New(config.MaxMemory)
	if err != nil {
		return nil, fault.Usage(err)
	}
	s := &Session{Config: config, begins: &begins{end: func() {}}, endProgress: func() {}, walking: func(int, int) {}, memory: memory}
	defer terminal.Await(s.Stderr, "checking what this machine can trace")()
	if s.warnings, err = RequireHost(ctx, env); err != nil {
		return nil, err
	}
	for _, pid := range config.Trace.PIDs {
		if err := CheckProcess(pid); err != nil {
			return nil, err
		}
	}
	if err := s.openCache(); err != nil {
		return nil, err
	}
	if command := config.Trace.Command; len(command) > 0 {
		if _, err := exec.LookPath(command[0]); err != nil {
			return nil, fault.New(fault.Failed, fmt.Errorf("start %s: %w", command[0], output.Cause(err)))
		}
	}
	return s, nil
}

// Open opens NVML and loads the BPF programs. It probes nothing yet.
func (s *Session) Open(ctx context.Context) (err error) {
	s.memory.Opens()
	s.mentionServer()
	s.begins.show(s.Stderr)
	if s.driver, err = nvml.OpenHost(ctx); err == nil {
		s.Trace.NVML = s.driver
		s.begins.say("asking the driver for the order of its GPUs")
		s.learnOrder(ctx)
	} else {
		fmt.Fprintf(s.Stderr, "vramprof: %v\n", err)
	}
	if s.Verbose {
		s.Trace.Note = func(text string) { fmt.Fprintln(s.Stderr, "vramprof:", untrusted.Clean(text)) }
	}
	s.Trace.Duration, s.Trace.Memory = s.Duration, s.memory.Tables()
	s.Trace.Stage = s.begins.stage(s.Trace.PIDs)
	s.Trace.Ready = func(pids []uint32) {
		s.memory.Began()
		s.begins.end()
		if s.Began != nil {
			s.Began()
		}
		s.confine()
		if s.Confined != nil {
			s.Confined()
		}
		if !s.Quiet {
			s.announce(pids)
		}
	}
	if o := s.Trace.Walks; o != nil {
		o.Progress = func(done, of int) { s.walking(done, of) }
		if s.Trace.Memory > 0 {
			o.MaxMemory = min(s.Trace.Memory/8, heapscan.DefaultMemory)
		}
	}
	s.begins.say("loading programs into the kernel")
	if s.tracer, err = tracer.New(s.Trace); err == nil {
		if s.steps != nil {
			s.steps.Begin(s.Stacks())
		}
		if s.Skippable != nil {
			s.Skippable(s.tracer.SkipWalks)
		}
	}
	return WithRemedy(err)
}

// WithRemedy adds to an error of the tracer what the user can do.
func WithRemedy(err error) error {
	if errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("%w (vramprof check computes how much the kernel half needs: free some, or raise the cgroup's limit)", err)
	}
	return err
}

func (s *Session) announce(pids []uint32) {
	what := "waiting for processes that use CUDA"
	if len(s.Trace.Command) > 0 {
		what = "tracing " + untrusted.Clean(s.Trace.Command[0])
	} else if len(pids) == 1 {
		what = fmt.Sprintf("tracing process %d", pids[0])
	} else if len(pids) > 1 {
		what = fmt.Sprintf("tracing %d processes", len(pids))
	}
	end := "Ctrl-C to end"
	if s.Duration > 0 {
		end = "for " + s.Duration.String() + ", " + end
	}
	fmt.Fprintf(s.Stderr, "vramprof: %s (%s)\n", what, end)
	if len(s.Trace.Command) > 0 { // it has the terminal
		s.endProgress = terminal.Await(s.Stderr, "")
	} else {
		s.endProgress = showProgress(s.Stderr, s.tracer.Sums)
		walking := showWalks(s.Stderr)
		s.walking = func(done, of int) {
			s.endProgress()
			walking(int64(done), int64(of))
		}
	}
}

// Run runs until Ctrl-C, the duration, or the end of the selected processes.
func (s *Session) Run(ctx context.Context) (*ledger.Snapshot, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	go s.keepWithinMemory(ctx, end)
	err := s.tracer.Run(ctx)
	s.ended.Store(true)
	s.begins.end()
	s.endProgress()
	s.memory.Finish()
	if s.Trace.Note != nil {
		s.noteKernelMemory()
	}
	if errors.Is(err, tracer.ErrNoProcess) {
		for _, pid := range s.Trace.PIDs {
			if CheckProcess(pid) != nil {
				return nil, fmt.Errorf("process %d ended before it could be traced", pid)
			}
		}
	}
	if err != nil {
		return nil, WithRemedy(err)
	}
	snapshot := s.Snapshot()
	if err := s.tracer.CommandError(); err != nil {
		snapshot.Warnings = append(snapshot.Warnings, "the command ended with "+err.Error())
	}
	if len(s.Trace.Command) > 0 && len(snapshot.Processes) == 0 {
		snapshot.Warnings = append(snapshot.Warnings, "the command never used CUDA: neither it nor its children loaded libcuda or libcudart")
	}
	if text := s.memoryWarning(snapshot); text != "" {
		snapshot.Warnings = append(snapshot.Warnings, text)
		s.Failed(errOutOfMemory)
	}
	snapshot.Warnings = append(snapshot.Warnings, s.ooms.End()...)
	if pids := running(snapshot); len(pids) > 0 {
		snapshot.Warnings = append(snapshot.Warnings, pslist.SharedBy(pids)...)
	}
	return snapshot, nil
}

// running returns the pids of the traced processes that have not ended.
func running(s *ledger.Snapshot) (pids []uint32) {
	for i := range s.Processes {
		if s.Processes[i].End == 0 {
			pids = append(pids, s.Processes[i].PID)
		}
	}
	return pids
}

// CommandStatus returns an error with the exit status of a command that failed by itself: its own,
// or 128 plus the signal.
func (s *Session) CommandStatus(ctx context.Context) error {
	var ended *exec.ExitError
	if s.failed || ctx.Err() != nil || !errors.As(s.tracer.CommandError(), &ended) {
		return nil // Ctrl-C, which the command got as well, is a normal end
	}
	code := ended.ExitCode()
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return fault.Status(code, errors.New("")) // the report shows it
}

// Close ends what the session has opened.
func (s *Session) Close() {
	s.begins.end()
	s.ooms.End()
	if s.tracer != nil {
		s.detach()
	}
	if s.Trace.Tables != nil {
		_ = s.Trace.Tables.Close()
	}
	if s.driver != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.driver.Close(ctx)
	}
}

// detachQuiet is after how long the end of a session reports that it waits for the kernel.
const detachQuiet = 300 * time.Millisecond

// detach frees what tracing took, and reports that it waits for the kernel if that takes long.
func (s *Session) detach() {
	defer sayLater(s.Stderr, "vramprof: detaching probes: the kernel waits until no thread runs in one")()
	s.tracer.Close()
}

// sayLater prints a line after detachQuiet, unless end is called before.
func sayLater(w io.Writer, line string) (end func()) {
	say := time.AfterFunc(detachQuiet, func() { fmt.Fprintln(w, line) })
	return func() { say.Stop() }
}

// RequireHost returns an error that names what is missing if tracing cannot work on this machine,
// and warnings for what may not work.
func RequireHost(ctx context.Context, env preflight.Env) (warnings []string, err error) {
	results := preflight.Check(ctx, env)
	if ctx.Err() != nil { // a check that was interrupted has found nothing out
		return nil, errors.New("interrupted before the session began")
	}
	for _, r := range results {
		switch r.Status {
		case preflight.Fail:
			return nil, fault.Status(max(r.Code, 1), fmt.Errorf("%s: %s (%s)", r.Name, r.Detail, r.Remedy))
		case preflight.Warn:
			warnings = append(warnings, r.Name+": "+r.Detail)
		}
	}
	return warnings, nil
}

// mentionServer prints a note before processes are attached that vramprof serve traces already.
func (s *Session) mentionServer() {
	if s.Advice == "" {
		return
	}
	conn, err := net.DialTimeout("unix", s.Server, mentionTime)
	if err != nil {
		return
	}
	conn.Close()
	fmt.Fprintf(s.Stderr, "vramprof: vramprof serve is running: %s instead of attaching again\n", s.Advice)
}

const mentionTime = 100 * time.Millisecond
