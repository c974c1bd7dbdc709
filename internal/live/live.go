// SPDX-License-Identifier: Apache-2.0

// Package live shows a session on the terminal while it goes on.
package live

import (
	"context"
	"fmt"
	"io"
	"os/user"
	"strconv"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/report/tui"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/nvml"
)

// Options choose what the screen shows, and where the result goes.
type Options struct {
	Sort    string // column; "": as usual
	Stdout  io.Writer
	Restore func(func())   // is told what gives the terminal back
	Alone   bool           // processes are chosen, so what else keeps GPUs is not shown
	Driver  *nvml.Driver   // of the session whose books Once prints; nil: none
	Steps   *steps.Session // of what Once prints; nil: unknown
}

func (o Options) view() tui.Options { return tui.Options{Sort: o.Sort, User: userName} }

// Once prints one screen as text.
func Once(ctx context.Context, snapshot *ledger.Snapshot, stacks callstack.Stacks, o Options) error {
	x := tui.Moment{Snapshot: snapshot, Judged: tui.Judge(snapshot, stacks), Stacks: stacks, Steps: o.Steps, Ended: true}
	if !o.Alone {
		x.Others = readOthers(ctx, o.Driver)
	}
	return tui.Once(o.Stdout, x, o.view(), terminal.Width())
}

// userName reads the name of a user from the host's list.
func userName(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return ""
	}
	return u.Username
}

// Session shows the session on the terminal until it ends, and then prints its summary.
func Session(ctx context.Context, s *session.Session, dir string, o Options) error {
	stderr := s.Stderr
	here, err := output.OpenFolder(".")
	if err != nil {
		return fault.New(fault.Failed, fmt.Errorf("open the current folder: %w", err))
	}
	defer here.Close()
	fmt.Fprintln(stderr, "vramprof: attaching")
	log := &Log{}
	s.Stderr, s.Quiet = log, true
	defer func() {
		s.Stderr = stderr
		log.PrintTo(stderr)
	}()
	s.FindSteps()
	if err := s.RecordOOMs(dir); err != nil {
		return err
	}
	command, err := keepOutput(s)
	if err != nil {
		return err
	}
	defer command.printTo(stderr)
	kept := keepCapture(s, here)
	defer kept.close()
	view := o.view()
	view.Profile = func(x *ledger.Snapshot) (string, error) { return profileWriter(here, s.Stacks())(x) }
	if kept != nil {
		view.Capture = kept.toggle
	}
	sc := newScreen(view, o.Restore)
	sc.others.off = o.Alone
	snapshot, err := onScreen(ctx, s, sc, log, kept)
	if err != nil {
		return err
	}
	err = kept.finish(log, snapshot)
	if e := text.WriteSummary(o.Stdout, snapshot, s.Stacks(), report.Options{Records: s.Records(), Steps: s.Steps()}, terminal.Screen()); err == nil {
		err = e
	}
	if err == nil {
		return s.CommandStatus(ctx)
	}
	return err
}

// onScreen traces while the screen shows it. The screen ends with the session, and the session with
// the screen.
func onScreen(parent context.Context, s *session.Session, sc *liveScreen, log *Log, kept *keptCapture) (*ledger.Snapshot, error) {
	ctx, end := context.WithCancel(parent)
	defer end()
	sc.showOOMs(s)
	if err := s.Open(parent); err != nil {
		return nil, err
	}
	if kept != nil {
		kept.writer.SetStacks(s.Tracer())
		kept.writer.SetCheckpoints(s.Tracer().Checkpoint)
	}
	sc.command = len(s.Trace.Command) > 0
	var snapshot *ledger.Snapshot
	var traceErr, screenErr error
	began, done := make(chan struct{}), make(chan struct{})
	s.Began = func() { close(began) }
	go func() {
		defer close(done)
		defer end()
		snapshot, traceErr = s.Run(ctx)
	}()
	select {
	case <-done: // there was nothing to trace
	case <-began:
		sc.others.driver = s.Driver()
		go sc.follow(ctx, s, log)
		screenErr = sc.run(ctx)
		end()
		<-done
	}
	if traceErr != nil {
		return nil, traceErr
	}
	if screenErr != nil {
		s.Failed(screenErr)
	}
	return snapshot, nil
}
