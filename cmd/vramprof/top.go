// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/live"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report/replay"
	"github.com/vramprof/vramprof/report/tui"
)

// onceTime is how long --once traces by default: growth needs some seconds.
const onceTime = 3 * time.Second

func topCommand(p *program) *cli.Command {
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
			connectFlag(insteadOfTracing),
		}),
		Action: p.topSession,
	}
}

func (p *program) topSession(c *cli.Context) error {
	if name := c.String("sort"); name != "" && !slices.Contains(tui.Columns(), name) {
		return fault.Usage(fmt.Errorf("--sort: unknown column %q (columns: %s)", name, strings.Join(tui.Columns(), ", ")))
	}
	if !(c.Float64("speed") > 0) {
		return fault.Usage(errors.New("--speed must be above 0"))
	}
	if connecting(c) {
		return p.topRemote(c)
	}
	if c.Args().Present() && !p.afterDashes(c) {
		return p.topFile(c)
	}
	if err := withoutCapture(c, "", "speed", "at", noLimits); err != nil {
		return err
	}
	dir, err := oomDir(c, ".")
	if err != nil {
		return err
	}
	config, err := p.sessionConfig(c)
	if err != nil {
		return err
	}
	if p.once(c) {
		config.Duration = cmp.Or(config.Duration, onceTime)
		if len(config.Trace.Command) > 0 {
			config.Trace.Stdout = os.Stderr // stdout has only the result
		}
	}
	s, err := session.New(c.Context, config)
	if err != nil {
		return err
	}
	if p.once(c) {
		defer s.Close()
		s.FindSteps()
		if err := s.Open(c.Context); err != nil {
			return err
		}
		snapshot, err := s.Run(c.Context)
		if err != nil {
			return err
		}
		o := p.liveOptions(c)
		o.Driver, o.Steps = s.Driver(), s.Steps()
		return live.Once(c.Context, snapshot, s.Stacks(), o)
	}
	defer terminal.DiscardKeys()
	defer s.Close()
	return live.Session(c.Context, s, dir, p.liveOptions(c))
}

// once reports whether one screen is printed as text.
func (p *program) once(c *cli.Context) bool { return c.Bool("once") || !live.Possible() }

func (p *program) liveOptions(c *cli.Context) live.Options {
	alone := c.IsSet("pid") || c.IsSet("name") || c.Args().Present()
	return live.Options{Sort: c.String("sort"), Stdout: c.App.Writer, Restore: p.setRestore, Alone: alone}
}

// topFile shows a capture: played on a terminal, else one moment of it.
func (p *program) topFile(c *cli.Context) error {
	at, err := source.ParseMoment(c.String("at"))
	if err != nil {
		return fault.Usage(err)
	}
	onScreen := !p.once(c)
	if onScreen { // how far reading is must not stand on the screen
		stderr, log := c.App.ErrWriter, &live.Log{}
		c.App.ErrWriter = log
		defer func() {
			c.App.ErrWriter = stderr
			log.PrintTo(stderr)
		}()
	}
	r, done, err := p.openSource(c, &at)
	if err != nil {
		return err
	}
	defer done()
	stacks := mine(c, r)
	if !onScreen {
		snapshot, err := source.SnapshotAt(r, at)
		if err != nil {
			return err
		}
		return live.Once(c.Context, snapshot, stacks, p.liveOptions(c))
	}
	from := replay.First(r)
	if c.IsSet("at") {
		if from, err = at.In(r); err != nil {
			return err
		}
	}
	return live.Play(c.Context, r, stacks, from, c.Float64("speed"), p.liveOptions(c))
}

// topRemote is top --connect.
func (p *program) topRemote(c *cli.Context) error {
	r, err := connectTo(c)
	if err != nil {
		return err
	}
	for _, name := range []string{"speed", "oom-dir", "no-oom"} {
		if c.IsSet(name) {
			return fault.Usage(fmt.Errorf("--%s and --connect exclude each other", name))
		}
	}
	stacks, once := mine(c, r), p.once(c)
	first, err := r.Books(c.Context, once)
	if err != nil {
		return err
	}
	if once {
		return live.Once(c.Context, first, stacks, p.liveOptions(c))
	}
	return live.Remote(c.Context, r, stacks, p.liveOptions(c))
}
