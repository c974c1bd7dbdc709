// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/duration"
	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/serve/notify"
	"github.com/vramprof/vramprof/internal/serve/web"
	"github.com/vramprof/vramprof/report/watch"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/nvml"
	"github.com/vramprof/vramprof/tracer/sandbox"
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
			"SIGHUP reads --config again, SIGUSR1 closes NVML for a minute. It logs JSON to stderr, one object per line.",
		Flags:  serveFlags(),
		Action: serve,
	}
}

func serveFlags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "read options from the YAML `FILE`, with the names of these flags; flags take precedence"},
		&cli.StringFlag{Name: "name", Usage: "trace only processes whose name, program or script matches the regular expression `REGEX`"},
		&cli.StringFlag{Name: "keep", Value: defaultKeep, Usage: "forget processes `TIME` after they ended"},
		&cli.StringSliceFlag{Name: "web.listen-address", Value: cli.NewStringSlice(defaultAddress), Usage: "listen on `ADDRESS` (repeatable)"},
		&cli.StringSliceFlag{Name: "web.external-host", Usage: "also answer requests for host `NAME`, as a reverse proxy or a DNS server has it (repeatable)"},
		&cli.StringSliceFlag{Name: "web.user", Usage: "show `USER` of this machine the processes of all users, as root; others see their own (repeatable)"},
		&cli.StringFlag{Name: "web.config.file", Usage: "read TLS and basic authentication from `FILE`, in the format of Prometheus exporters"},
		&cli.BoolFlag{Name: "metrics-pid", Usage: "give metrics the labels pid, comm, rank and actor: one set of series per process"},
		&cli.StringFlag{Name: "run-dir", Value: defaultRunDir, Usage: "create the socket for --connect in `DIR`; \"\": none"},
		&cli.StringFlag{Name: "tensors", Value: "auto", Usage: "trace PyTorch tensors: `WHEN` is auto, on or off"},
		&cli.StringFlag{Name: "sample", Value: "auto", Usage: "take the stack of one tensor in `BYTES` on average; 0: of every tensor; auto: 1MiB, less often above 4,000 stacks per second"},
		driverObjectsFlag(),
		&cli.StringFlag{Name: "holders", Value: "10m", Usage: "look for who keeps PyTorch's tensors: `WHEN` is off, end (at the attach) or also every 30s, 10m, …"},
		&cli.BoolFlag{Name: "no-names", Usage: "read classes of holders, not names of variables, attributes and keys"},
		&cli.StringFlag{Name: "max-memory", Value: "auto", Usage: "drop detail before vramprof exceeds `BYTES`; auto: a quarter of the memory, 512MiB to 4GiB"},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "also log what is probed"},
		mineFlag(),
	}, cacheFlags(), archiveFlags(), alertFlags())
}

// server is a session without an end, and who asks for it.
type server struct {
	*session
	host     string
	pages    atomic.Pointer[web.Server]
	hosts    []string         // --web.external-host
	users    []uint32         // --web.user
	stacks   callstack.Stacks // with --mine
	log      *slog.Logger
	verdicts *watch.Watcher
	archive  *archive.Writer // nil: none
	alerts   *notify.Runner  // nil: none
	keep     atomic.Int64    // ns: --keep
	relief   relief
	ready    atomic.Bool  // clients are answered
	tracing  atomic.Bool  // there are books
	began    atomic.Int64 // wall clock, ns
	kernel   kernelMemory
	jobAge   func() time.Duration // Tracer.JobAge, or an imitation of one in tests
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
	s := &server{hosts: c.StringSlice("web.external-host"), log: log}
	s.jobAge = func() time.Duration { return s.tracer.JobAge() }
	s.host, _ = os.Hostname()
	if s.users, err = usersOf(c); err != nil {
		return err
	}
	if err := s.set(c); err != nil {
		return err
	}
	if s.session, err = newSession(c); err != nil {
		return err
	}
	defer s.close()
	s.config.Wait = true
	var sockets *listeners
	if err := aboveProbes(func() (err error) { sockets, err = s.listen(c); return err }); err != nil {
		return err
	}
	defer sockets.close()
	if sockets.open() {
		log.Warn("everybody who can connect sees the processes of all users (see --web.config.file, or let a firewall or a network policy admit only some)", "addresses", sockets.addresses())
	}
	history, err := archiveOptions(c)
	if err != nil {
		return err
	}
	if err := s.startAlerts(c); err != nil {
		return err
	}
	defer s.endAlerts()
	s.verdicts = s.newWatcher()
	if err := s.keepRecords(c); err != nil {
		return err
	}
	s.config.OOM = s.outOfMemory
	return s.run(c, sockets, history, config)
}

// set reads the options that a reload may change.
func (s *server) set(c *cli.Context) error {
	keep, err := duration.Parse(c.String("keep"))
	if err != nil {
		return fault.Usage(fmt.Errorf("--keep: %w", err))
	}
	if _, err := regexp.Compile(c.String("mine")); err != nil {
		return fault.Usage(fmt.Errorf("--mine: %w", err))
	}
	s.keep.Store(int64(keep))
	return nil
}

// run traces and serves until the command's context ends.
func (s *server) run(c *cli.Context, l *listeners, history archive.Options, config *serveConfig) error {
	ctx, end := context.WithCancel(c.Context)
	defer end()
	s.suspendOnSignal(ctx)
	systemd := newNotifier()
	var once sync.Once
	answer := func() {
		once.Do(func() {
			pages := web.New(web.Config{
				Session: s, Version: version, Ready: func() bool { return ctx.Err() == nil && s.isReady() }, Archive: momentsOfArchive(c),
				Hosts: s.hosts, Users: s.users, Passwords: l.passwords, MetricsPID: c.Bool("metrics-pid"), Verdicts: s.verdicts,
			})
			s.pages.Store(pages)
			l.serve(pages, s.log)
			s.ready.Store(true)
			systemd.ready()
			go systemd.watch(ctx, s.alive)
			go config.reload(ctx, s, systemd)
		})
	}
	if err := s.await(ctx, answer); err != nil {
		return ended(err)
	}
	open := func() error { return s.openArchive(c.String("archive"), history) }
	if err := aboveProbes(open); err != nil { // not before: it wakes up some times per second
		return err
	}
	defer s.endArchive()
	s.showing = true // there is no terminal to tell
	s.confined = func() {
		s.began.Store(time.Now().UnixNano())
		s.tracing.Store(true)
		s.log.Info("tracing", "addresses", l.addresses())
		answer()
	}
	if err := s.open(c); err != nil {
		return err
	}
	s.stacks = mine(c, s.tracer)
	if s.archive != nil {
		s.archive.SetStacks(s.tracer)
	}
	go s.keepWithin(ctx)
	go s.forget(ctx)
	go s.keepJudging(ctx)
	go s.watchRefusals(ctx)
	err := s.tracer.Run(ctx)
	s.ready.Store(false)
	systemd.stopping()
	l.shut()
	s.memory.Finish()
	if err := ended(err); err != nil {
		return withRemedy(err)
	}
	s.log.Info("ended", "traced", time.Since(time.Unix(0, s.began.Load())).Round(time.Second).String())
	return nil
}

// await returns when there may be something to trace: at once on a machine with NVIDIA's driver,
// elsewhere when a process maps CUDA. Until then there are no BPF programs and rings, and answer
// has clients served with the privileges that are needed to load them.
func (s *server) await(ctx context.Context, answer func()) error {
	if driver, err := nvml.OpenHost(ctx); err == nil {
		return driver.Close(ctx)
	}
	if held, err := sandbox.Effective(); err == nil {
		needs := sandbox.Needs{Capabilities: held & (tracing | admin | override | sandbox.NewSet(unix.CAP_SYS_RESOURCE)), BPF: true}
		if err := sandbox.Process(needs); err != nil {
			s.log.Warn("cannot drop privileges", "error", err)
		}
	}
	answer()
	s.log.Info("no NVIDIA driver: waiting for a process that uses CUDA")
	return libraries.Await(ctx)
}

// ended returns nil for the error of a session that was asked to end.
func ended(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
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
			s.tracer.Forget(time.Duration(s.keep.Load()))
		}
	}
}

// New processes are found and probed within seconds. A task that has waited for longer means that
// something holds up the goroutine that does so.
const (
	readyAge = time.Minute
	aliveAge = 10 * time.Minute // before Linux 6.6, the probes of many files take minutes
)

// finds reports whether processes are still found and probed: no task is older than most.
func (s *server) finds(most time.Duration) bool { return !s.tracing.Load() || s.jobAge() < most }

// isReady reports whether clients are answered and new processes are found.
func (s *server) isReady() bool { return s.ready.Load() && s.finds(readyAge) }

// alive reports whether events are still booked, and processes found: the turn to book comes within a
// second.
func (s *server) alive() bool {
	if !s.tracing.Load() {
		return true
	}
	if !s.finds(aliveAge) {
		return false
	}
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

// Stack returns the frames of a stack, leaf first.
func (s *server) Stack(id uint64) []callstack.Frame {
	if !s.tracing.Load() {
		return nil
	}
	return s.stacks.Stack(id)
}

// Glance returns the books, which are empty before tracing has begun.
func (s *server) Glance() *ledger.Snapshot {
	if !s.tracing.Load() {
		return s.nothing()
	}
	return s.glance()
}

// Snapshot is Glance with the stuck cache and the peaks.
func (s *server) Snapshot() *ledger.Snapshot {
	if !s.tracing.Load() {
		return s.nothing()
	}
	return s.snapshot()
}

func (*server) nothing() *ledger.Snapshot {
	host, _ := os.Hostname()
	now := clock.Now()
	return &ledger.Snapshot{Host: host, Begin: now, End: now, Wall: time.Now()}
}
