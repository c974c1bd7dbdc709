// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/web"
)

const (
	defaultAddress = "localhost:9836"
	defaultRunDir  = "/run/vramprof"
	defaultKeep    = "10m"

	forgetEvery = time.Minute
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:      "serve",
		Usage:     "trace every CUDA process as a daemon, for Prometheus, pprof over HTTP and a live page",
		UsageText: "vramprof serve [OPTIONS]",
		Description: "Traces until SIGTERM or Ctrl-C. It listens on " + defaultAddress + ", keeps processes that ended for a while, and forgets the rest. " +
			"SIGHUP reads --config again. It logs JSON to stderr, one object per line.",
		Flags:  serveFlags(),
		Action: serve,
	}
}

func serveFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "read options from the YAML `FILE`, with the names of these flags; flags take precedence"},
		&cli.StringFlag{Name: "name", Usage: "trace only processes whose name, program or script matches the regular expression `REGEX`"},
		&cli.StringFlag{Name: "keep", Value: defaultKeep, Usage: "forget processes `TIME` after they ended"},
		&cli.StringSliceFlag{Name: "web.listen-address", Value: cli.NewStringSlice(defaultAddress), Usage: "listen on `ADDRESS` (repeatable)"},
		&cli.StringFlag{Name: "web.config.file", Usage: "read TLS and basic authentication from `FILE`, in the format of Prometheus exporters"},
		&cli.StringFlag{Name: "run-dir", Value: defaultRunDir, Usage: "create the socket for --connect in `DIR`; \"\": none"},
		&cli.StringFlag{Name: "tensors", Value: "auto", Usage: "trace PyTorch tensors: `WHEN` is auto, on or off"},
		&cli.StringFlag{Name: "sample", Value: "auto", Usage: "take the stack of one tensor in `BYTES` on average; 0: of every tensor; auto: 1MiB, less often above 4,000 stacks per second"},
		&cli.StringFlag{Name: "holders", Value: "10m", Usage: "look for who keeps PyTorch's tensors: `WHEN` is off, end (at the attach) or also every 30s, 10m, …"},
		&cli.BoolFlag{Name: "no-names", Usage: "read classes of holders, not names of variables, attributes and keys"},
		&cli.StringFlag{Name: "max-memory", Value: "auto", Usage: "drop detail before vramprof exceeds `BYTES`; auto: a quarter of the memory, 512MiB to 4GiB"},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "also log what is probed"},
		mineFlag(),
	}
}

// server is a session without an end, and who asks for it.
type server struct {
	*session
	stacks  callstack.Stacks // with --mine
	log     *slog.Logger
	keep    atomic.Int64 // ns: --keep
	relief  relief
	tracing atomic.Bool
	began   atomic.Int64 // wall clock, ns
	ooms    atomic.Uint64
}

func serve(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	config, err := readServeConfig(c)
	if err != nil {
		return err
	}
	log := logTo(c)
	s := &server{log: log}
	if err := s.set(c); err != nil {
		return err
	}
	if s.session, err = newSession(c); err != nil {
		return err
	}
	defer s.close()
	s.config.Wait = true
	listeners, err := s.listen(c)
	if err != nil {
		return err
	}
	defer listeners.close()
	watchdog := newNotifier()
	if err := s.open(c); err != nil {
		return err
	}
	s.stacks = mine(c, s.tracer)
	return s.run(c.Context, listeners, watchdog, config)
}

// set reads the options that a reload may change.
func (s *server) set(c *cli.Context) error {
	keep, err := parseDuration(c.String("keep"))
	if err != nil {
		return usageError{fmt.Errorf("--keep: %w", err)}
	}
	if _, err := regexp.Compile(c.String("mine")); err != nil {
		return usageError{fmt.Errorf("--mine: %w", err)}
	}
	s.keep.Store(int64(keep))
	return nil
}

// run traces and serves until ctx ends.
func (s *server) run(ctx context.Context, listeners *listeners, systemd *notifier, config *serveConfig) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	pages := web.New(web.Config{Session: s, Ready: s.tracing.Load})
	s.begun = func() {
		s.began.Store(time.Now().UnixNano())
		s.tracing.Store(true)
		listeners.serve(pages, s.log)
		systemd.ready()
		s.log.Info("tracing", "addresses", listeners.addresses())
	}
	s.showing = true // there is no terminal to tell
	go s.keepWithin(ctx)
	go s.forget(ctx)
	go systemd.watch(ctx, s.alive)
	go config.reload(ctx, s, systemd)
	err := s.tracer.Run(ctx)
	s.tracing.Store(false)
	systemd.stopping()
	listeners.shut()
	s.memory.finish()
	if err != nil && !errors.Is(err, context.Canceled) {
		return withRemedy(err)
	}
	s.log.Info("ended", "traced", time.Duration(clock.Now()-s.Snapshot().Begin).Round(time.Second).String())
	return nil
}

// forget has the books drop processes that ended --keep ago.
func (s *server) forget(ctx context.Context) {
	tick := time.NewTicker(forgetEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// alive reports whether events are still booked: the turn to book comes within a second.
func (s *server) alive() bool {
	done := make(chan struct{})
	go func() {
		s.tracer.Sums()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(time.Second):
		return false
	}
}

func (s *server) Stack(id uint64) []callstack.Frame { return s.stacks.Stack(id) }

func (s *server) Glance() *ledger.Snapshot   { return s.glance() }
func (s *server) Snapshot() *ledger.Snapshot { return s.snapshot() }

// Own returns what vramprof itself uses.
func (s *server) Own() web.Own {
	own, mapped := ownMemory()
	return web.Own{
		Version: version, Began: time.Unix(0, s.began.Load()), Memory: own + mapped, Ceiling: s.memory.ceiling,
		CPU: cpuTime(), Dropped: int(s.relief.steps.Load()), OOMs: s.ooms.Load(),
	}
}
