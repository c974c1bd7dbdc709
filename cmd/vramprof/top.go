// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/report/tui"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// onceTime is how long --once traces by default: growth needs some seconds.
const onceTime = 3 * time.Second

func topCommand() *cli.Command {
	return &cli.Command{
		Name:      "top",
		Usage:     "show GPU memory live: GPUs, processes, lines of code, and memory over time",
		UsageText: "vramprof top [OPTIONS] [FILE | -- COMMAND [ARGUMENTS]]",
		Description: "Traces like record and redraws a screen once a second. The key ? lists the keys, q ends it and prints the summary. " +
			"With FILE, a capture, it plays the session again. Without a terminal it is --once.",
		Flags: slices.Concat(traceFlags(), []cli.Flag{
			&cli.BoolFlag{Name: "once", Usage: "print one screen as text, after --duration (default: " + onceTime.String() + "); of FILE its end"},
			&cli.StringFlag{Name: "sort", Usage: "sort by `COLUMN`: " + strings.Join(tui.Columns(), ", ")},
			&cli.Float64Flag{Name: "speed", Value: 1, Usage: "play FILE `N` times as fast as it was"},
			momentFlags()[0],
			readFlags()[0],
			&cli.StringFlag{Name: "oom-dir", Usage: "write a record of each out-of-memory error into `DIR` (default: this folder)"},
			&cli.BoolFlag{Name: "no-oom", Usage: "write no records of out-of-memory errors"},
			mineFlag(),
			connectFlag(),
		}),
		Action: topSession,
	}
}

func topSession(c *cli.Context) error {
	if name := c.String("sort"); name != "" && !slices.Contains(tui.Columns(), name) {
		return usageError{fmt.Errorf("--sort: unknown column %q (columns: %s)", name, strings.Join(tui.Columns(), ", "))}
	}
	if !(c.Float64("speed") > 0) {
		return usageError{errors.New("--speed must be above 0")}
	}
	if connecting(c) {
		return topRemote(c)
	}
	if c.Args().Present() && !afterDashes(c) {
		return topFile(c)
	}
	if err := withoutCapture(c, "", "speed", "at", noLimits); err != nil {
		return err
	}
	dir, err := oomDir(c, ".")
	if err != nil {
		return err
	}
	s, err := newSession(c)
	if err != nil {
		return err
	}
	if c.Bool("once") || !screenPossible() {
		defer s.close()
		return s.topOnce(c)
	}
	defer discardKeys()
	defer s.close()
	return s.topLive(c, dir)
}

// topOnce traces for a short time and prints one screen.
func (s *session) topOnce(c *cli.Context) error {
	if s.duration == 0 {
		s.duration = onceTime
	}
	if len(s.config.Command) > 0 {
		s.config.Stdout = os.Stderr // stdout has only the result
	}
	if err := s.open(c); err != nil {
		return err
	}
	snapshot, err := s.trace(c.Context)
	if err != nil {
		return err
	}
	return writeOnce(c, snapshot, mine(c, s.tracer))
}

func writeOnce(c *cli.Context, snapshot *ledger.Snapshot, stacks callstack.Stacks) error {
	x := tui.Moment{Snapshot: snapshot, Judged: tui.Judge(snapshot, stacks), Stacks: stacks, Ended: true}
	return tui.Once(c.App.Writer, x, topOptions(c), width())
}

func topOptions(c *cli.Context) tui.Options {
	return tui.Options{Sort: c.String("sort"), User: userName}
}

// userName reads the name of a user from the host's list.
func userName(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return ""
	}
	return u.Username
}

// topLive shows the session on the terminal until it ends, and then prints its summary.
func (s *session) topLive(c *cli.Context, dir string) error {
	stderr := c.App.ErrWriter
	here, err := openFolder(".")
	if err != nil {
		return codedError{fmt.Errorf("open the current folder: %w", err), exitError}
	}
	defer here.Close()
	fmt.Fprintln(stderr, "vramprof: attaching")
	log := &screenLog{}
	c.App.ErrWriter, s.stderr, s.showing = log, log, true
	defer func() {
		c.App.ErrWriter, s.stderr = stderr, stderr
		log.printTo(stderr)
	}()
	if err := s.recordOOMs(c, dir); err != nil {
		return err
	}
	output, err := s.keepOutput()
	if err != nil {
		return err
	}
	defer output.printTo(stderr)
	kept := s.keepCapture(c, here)
	defer kept.close()
	o := topOptions(c)
	o.Profile = func(x *ledger.Snapshot) (string, error) { return profileWriter(here, mine(c, s.tracer))(x) }
	if kept != nil {
		o.Capture = kept.toggle
	}
	snapshot, err := s.onScreen(c, newScreen(c, o), log, kept)
	if err != nil {
		return err
	}
	err = kept.finish(log, snapshot)
	if e := text.WriteSummary(c.App.Writer, snapshot, mine(c, s.tracer), report.Options{Records: s.ooms.Paths()}, screen()); err == nil {
		err = e
	}
	if failed, _ := c.App.Metadata[failedKey].(error); err == nil && failed == nil {
		return s.commandStatus(c.Context)
	}
	return err
}

// onScreen traces while the screen shows it. The screen ends with the session, and the session with
// the screen.
func (s *session) onScreen(c *cli.Context, sc *liveScreen, log *screenLog, kept *keptCapture) (*ledger.Snapshot, error) {
	ctx, end := context.WithCancel(c.Context)
	defer end()
	sc.showOOMs(s)
	if err := s.open(c); err != nil {
		return nil, err
	}
	if kept != nil {
		kept.writer.SetStacks(s.tracer)
		kept.writer.SetCheckpoints(s.tracer.Checkpoint)
	}
	sc.command = len(s.config.Command) > 0
	var snapshot *ledger.Snapshot
	var traceErr, screenErr error
	began, done := make(chan struct{}), make(chan struct{})
	s.begun = func() { close(began) }
	go func() {
		defer close(done)
		defer end()
		snapshot, traceErr = s.trace(ctx)
	}()
	select {
	case <-done: // there was nothing to trace
	case <-began:
		go sc.follow(ctx, s.glance, mine(c, s.tracer), log)
		screenErr = sc.run(ctx)
		end()
		<-done
	}
	if traceErr != nil {
		return nil, traceErr
	}
	if screenErr != nil {
		s.failed(screenErr)
	}
	return snapshot, nil
}
