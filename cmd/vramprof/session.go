// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/nvml"
	"github.com/vramprof/vramprof/tracer/preflight"
)

// traceFlags are the flags of every command that traces.
func traceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "pid", Aliases: []string{"p"}, Usage: "trace the process `PID` (repeatable)"},
		&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "trace every process, and wait for the first if there is none"},
		&cli.StringFlag{Name: "name", Usage: "trace processes whose name, program or script matches `REGEX`, now or later"},
		&cli.StringFlag{Name: "duration", Aliases: []string{"d"}, Usage: "stop after `TIME` (30s, 10m, or plain seconds; default: until Ctrl-C)"},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "say what is probed"},
	}
}

// session is one run of the tracer.
type session struct {
	tracer   *tracer.Tracer
	duration time.Duration
	driver   *nvml.Driver
	warnings []string // of the host
}

// open checks the command line and the host, and loads the programs; nothing
// is probed yet. command is what stands behind "--".
func open(c *cli.Context, command []string) (*session, error) {
	config, err := configOf(c, command)
	if err != nil {
		return nil, err
	}
	duration, err := parseDuration(c.String("duration"))
	if err != nil {
		return nil, usageError{err}
	}
	for _, pid := range config.PIDs {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
			return nil, fmt.Errorf("process %d does not exist", pid)
		}
	}
	s := &session{duration: duration}
	if s.warnings, err = requireHost(c.Context); err != nil {
		return nil, err
	}
	if s.driver, err = openNVML(c.Context); err == nil {
		config.NVML = nvmlReader{s.driver}
	} else {
		fmt.Fprintf(c.App.ErrWriter, "vramprof: no NVML, so nothing is checked against the driver: %v\n", err)
	}
	verbose := c.Bool("verbose")
	config.Note = func(text string) {
		if verbose {
			fmt.Fprintln(c.App.ErrWriter, "vramprof:", symbolize.Clean(text))
		}
	}
	config.Ready = func(pids []uint32) { announce(c, command, pids, duration) }
	if s.tracer, err = tracer.New(config); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func announce(c *cli.Context, command []string, pids []uint32, duration time.Duration) {
	what := "waiting for processes that use CUDA"
	if len(command) > 0 {
		what = "tracing " + symbolize.Clean(command[0])
	} else if len(pids) == 1 {
		what = fmt.Sprintf("tracing process %d", pids[0])
	} else if len(pids) > 1 {
		what = fmt.Sprintf("tracing %d processes", len(pids))
	}
	end := "Ctrl-C to end"
	if duration > 0 {
		end = "for " + duration.String() + ", " + end
	}
	fmt.Fprintf(c.App.ErrWriter, "vramprof: %s (%s)\n", what, end)
}

// trace runs until the user, the duration or the processes end it, and takes
// the probes away.
func (s *session) trace(ctx context.Context) (*ledger.Snapshot, error) {
	if s.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.duration)
		defer cancel()
	}
	if err := s.tracer.Run(ctx); err != nil {
		return nil, err
	}
	snapshot := s.tracer.Snapshot()
	snapshot.Warnings = append(snapshot.Warnings, s.warnings...)
	if err := s.tracer.CommandError(); err != nil {
		snapshot.Warnings = append(snapshot.Warnings, "the command ended with "+err.Error())
	}
	return snapshot, nil
}

func (s *session) close() {
	if s.tracer != nil {
		s.tracer.Close()
	}
	if s.driver != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.driver.Close(ctx)
	}
}

func configOf(c *cli.Context, command []string) (tracer.Config, error) {
	config := tracer.Config{Command: command, Wait: c.Bool("all") || c.IsSet("name")}
	for _, list := range c.StringSlice("pid") {
		for _, text := range strings.Split(list, ",") {
			pid, err := strconv.ParseUint(text, 10, 31)
			if err != nil || pid == 0 {
				return config, usageError{fmt.Errorf("%q is not a process id", text)}
			}
			config.PIDs = append(config.PIDs, uint32(pid))
		}
	}
	if c.IsSet("name") {
		name, err := regexp.Compile(c.String("name"))
		if err != nil {
			return config, usageError{fmt.Errorf("--name: %w", err)}
		}
		config.Name = name
	}
	chosen := 0
	for _, yes := range []bool{len(config.PIDs) > 0, c.Bool("all"), c.IsSet("name"), len(command) > 0} {
		if yes {
			chosen++
		}
	}
	if chosen > 1 {
		return config, usageError{errors.New("choose one of --pid, --all, --name and a command")}
	}
	return config, nil
}

// parseDuration takes Go's durations and plain seconds; "" is no limit.
func parseDuration(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		var seconds float64
		if seconds, err = strconv.ParseFloat(text, 64); err != nil {
			return 0, fmt.Errorf("%q is not a duration (30s, 10m, or plain seconds)", text)
		}
		d = time.Duration(seconds * float64(time.Second))
	}
	if d <= 0 {
		return 0, fmt.Errorf("the duration %q is not positive", text)
	}
	return d, nil
}

// requireHost refuses to start where tracing cannot work, naming what is
// missing. It returns warnings for what may not work.
func requireHost(ctx context.Context) (warnings []string, err error) {
	env, err := preflight.Host()
	if err != nil {
		return nil, err
	}
	for _, r := range preflight.Check(ctx, env) {
		switch {
		case r.Status == preflight.Fail:
			return nil, codedError{fmt.Errorf("%s: %s (%s)", r.Name, r.Detail, r.Remedy), max(r.Code, exitError)}
		case r.Status == preflight.Warn:
			warnings = append(warnings, r.Name+": "+r.Detail)
		}
	}
	return warnings, nil
}

// openNVML bounds the wait for a driver that hangs.
func openNVML(ctx context.Context) (*nvml.Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return nvml.Open(ctx, "")
}

// nvmlReader gives the tracer what it needs of package nvml.
type nvmlReader struct{ *nvml.Driver }

func (nvmlReader) Ordinals(environ []string, gpus []ledger.GPU) []string {
	return nvml.Ordinals(environ, gpus)
}

// width is the number of columns of stdout, 80 when it is no terminal.
func width() int {
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w >= 40 {
		return w
	}
	return 80
}
