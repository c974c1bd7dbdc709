// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/vramprof/vramprof/internal/ceiling"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/heapscan"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/nvml"
	"github.com/vramprof/vramprof/tracer/oom"
	"github.com/vramprof/vramprof/tracer/preflight"
)

// session is one run of the tracer.
type session struct {
	config   tracer.Config
	duration time.Duration
	tracer   *tracer.Tracer
	driver   *nvml.Driver
	warnings []string // about the host
	ooms     *oom.Recorder
	memory   *ceiling.Watch
	exceeded atomic.Pointer[string] // why tracing ended early, nil if it did not
	stderr   io.Writer
	failed   func(error) // sets the error to return after all results are written

	begun       func() // called when tracing begins; may be nil
	confined    func() // called when privileges are dropped after that; may be nil
	showing     bool   // the terminal shows that tracing has begun
	endProgress func()
	walking     func(done, of int) // is told of walks at the end
}

// newSession reads the command line and checks that this machine can trace and that the selected
// processes or the command exist.
func newSession(c *cli.Context) (*session, error) {
	config, err := configOf(c)
	if err != nil {
		return nil, err
	}
	duration, err := parseDuration(c.String("duration"))
	if err != nil {
		return nil, usageError{err}
	}
	env, err := preflight.ReadHost()
	if err != nil {
		return nil, err
	}
	memory, err := ceiling.New(c.String("max-memory"))
	if err != nil {
		return nil, usageError{err}
	}
	s := &session{
		config: config, duration: duration, endProgress: func() {}, walking: func(int, int) {}, memory: memory, stderr: c.App.ErrWriter,
		failed: func(err error) { c.App.Metadata[failedKey] = err },
	}
	if s.warnings, err = requireHost(c.Context, env); err != nil {
		return nil, err
	}
	for _, pid := range config.PIDs {
		if err := checkProcess(pid); err != nil {
			return nil, err
		}
	}
	if err := s.openCache(c); err != nil {
		return nil, err
	}
	if len(config.Command) > 0 {
		if _, err := exec.LookPath(config.Command[0]); err != nil {
			return nil, codedError{fmt.Errorf("start %s: %w", config.Command[0], output.Cause(err)), exitError}
		}
	}
	return s, nil
}

// open opens NVML and loads the BPF programs. It probes nothing yet.
func (s *session) open(c *cli.Context) (err error) {
	mentionServer(c)
	if s.driver, err = openNVML(c.Context); err == nil {
		s.config.NVML = s.driver
		s.learnOrder(c.Context)
	} else {
		fmt.Fprintf(c.App.ErrWriter, "vramprof: %v\n", err)
	}
	if c.Bool("verbose") {
		s.config.Note = func(text string) { fmt.Fprintln(c.App.ErrWriter, "vramprof:", untrusted.Clean(text)) }
	}
	s.config.Duration, s.config.Memory = s.duration, s.memory.Tables()
	s.config.Ready = func(pids []uint32) {
		if s.begun != nil {
			s.begun()
		}
		s.confine(c)
		if s.confined != nil {
			s.confined()
		}
		if !s.showing {
			s.announce(c, pids)
		}
	}
	if o := s.config.Walks; o != nil {
		o.Progress = func(done, of int) { s.walking(done, of) }
		if s.config.Memory > 0 {
			o.MaxMemory = min(s.config.Memory/8, heapscan.DefaultMemory)
		}
	}
	if s.tracer, err = tracer.New(s.config); err == nil {
		c.App.Metadata[skipKey] = s.tracer.SkipWalks
	}
	return withRemedy(err)
}

func withRemedy(err error) error {
	if errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("%w (vramprof check computes how much the kernel half needs: free some, or raise the cgroup's limit)", err)
	}
	return err
}

func (s *session) announce(c *cli.Context, pids []uint32) {
	what := "waiting for processes that use CUDA"
	if len(s.config.Command) > 0 {
		what = "tracing " + untrusted.Clean(s.config.Command[0])
	} else if len(pids) == 1 {
		what = fmt.Sprintf("tracing process %d", pids[0])
	} else if len(pids) > 1 {
		what = fmt.Sprintf("tracing %d processes", len(pids))
	}
	end := "Ctrl-C to end"
	if s.duration > 0 {
		end = "for " + s.duration.String() + ", " + end
	}
	fmt.Fprintf(c.App.ErrWriter, "vramprof: %s (%s)\n", what, end)
	if !c.Bool("verbose") && len(s.config.Command) == 0 { // a command or -v writes to the terminal itself
		s.endProgress = sync.OnceFunc(showProgress(c.App.ErrWriter, s.tracer.Sums))
		walking := showWalks(c.App.ErrWriter)
		s.walking = func(done, of int) {
			s.endProgress()
			walking(int64(done), int64(of))
		}
	}
}

// trace runs until Ctrl-C, the duration, or the end of the selected processes.
func (s *session) trace(ctx context.Context) (*ledger.Snapshot, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	go s.keepWithinMemory(ctx, end)
	err := s.tracer.Run(ctx)
	s.endProgress()
	s.memory.Finish()
	if s.config.Note != nil {
		s.noteKernelMemory()
	}
	if errors.Is(err, tracer.ErrNoProcess) {
		for _, pid := range s.config.PIDs {
			if checkProcess(pid) != nil {
				return nil, fmt.Errorf("process %d ended before it could be traced", pid)
			}
		}
	}
	if err != nil {
		return nil, withRemedy(err)
	}
	snapshot := s.snapshot()
	if err := s.tracer.CommandError(); err != nil {
		snapshot.Warnings = append(snapshot.Warnings, "the command ended with "+err.Error())
	}
	if len(s.config.Command) > 0 && len(snapshot.Processes) == 0 {
		snapshot.Warnings = append(snapshot.Warnings, "the command never used CUDA: neither it nor its children loaded libcuda or libcudart")
	}
	if text := s.memoryWarning(snapshot); text != "" {
		snapshot.Warnings = append(snapshot.Warnings, text)
		s.failed(errOutOfMemory)
	}
	snapshot.Warnings = append(snapshot.Warnings, s.ooms.End()...)
	return snapshot, nil
}

// commandStatus returns an error with the exit status of a command that failed by itself: its own,
// or 128 plus the signal.
func (s *session) commandStatus(ctx context.Context) error {
	var ended *exec.ExitError
	if ctx.Err() != nil || !errors.As(s.tracer.CommandError(), &ended) {
		return nil // Ctrl-C, which the command got as well, is a normal end
	}
	code := ended.ExitCode()
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return codedError{errors.New(""), code} // the report shows it
}

func (s *session) snapshot() *ledger.Snapshot { return s.warned(s.tracer.Snapshot()) }

// glance is snapshot for a screen that is redrawn: see tracer.Glance.
func (s *session) glance() *ledger.Snapshot { return s.warned(s.tracer.Glance()) }

// warned adds the warnings that the tracer does not know to a snapshot.
func (s *session) warned(snapshot *ledger.Snapshot) *ledger.Snapshot {
	snapshot.Warnings = append(snapshot.Warnings, s.warnings...)
	if s.driver != nil && s.driver.Unavailable() > 0 {
		snapshot.Warnings = append(snapshot.Warnings, "the driver did not report the memory of every process")
	}
	return snapshot
}

func (s *session) close() {
	s.ooms.End()
	if s.tracer != nil {
		s.detach()
	}
	if s.config.Tables != nil {
		_ = s.config.Tables.Close()
	}
	if s.driver != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.driver.Close(ctx)
	}
}

// requireHost returns an error that names what is missing if tracing cannot work on this machine,
// and warnings for what may not work.
func requireHost(ctx context.Context, env preflight.Env) (warnings []string, err error) {
	for _, r := range preflight.Check(ctx, env) {
		switch r.Status {
		case preflight.Fail:
			return nil, codedError{fmt.Errorf("%s: %s (%s)", r.Name, r.Detail, r.Remedy), max(r.Code, exitError)}
		case preflight.Warn:
			warnings = append(warnings, r.Name+": "+r.Detail)
		}
	}
	return warnings, nil
}

// openNVML opens the driver. It gives up after 5 s if the driver hangs.
func openNVML(ctx context.Context) (*nvml.Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return nvml.Open(ctx, "")
}

// Columns of text output: width is at least leastColumns, at most mostColumns, and usualColumns
// without a terminal.
const leastColumns, mostColumns, usualColumns = 20, 1000, 80

// width returns the number of columns to fill: COLUMNS, the width of the
// terminal on stdout, or 80.
func width() int {
	w, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err != nil || w <= 0 {
		w, _, err = term.GetSize(int(os.Stdout.Fd()))
	}
	if err != nil || w <= 0 {
		return usualColumns
	}
	return min(max(w, leastColumns), mostColumns)
}
