// SPDX-License-Identifier: Apache-2.0

// Package serve traces as a daemon: it keeps the books of all processes and an archive of the past,
// and answers over HTTP.
package serve

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/serve/web"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/nvml"
)

const forgetEvery = time.Minute

// Run traces and serves until ctx ends.
func Run(ctx context.Context, config Config) (err error) {
	log, lines := newLog(config.Session.Stderr)
	config.Session.Stderr, config.Session.Trace.Wait = lines, true
	s := &server{log: log}
	s.jobAge = func() time.Duration { return s.tracer().JobAge() }
	s.host, _ = os.Hostname()
	s.keep.Store(int64(config.Keep))
	if s.session, err = session.New(ctx, config.Session); err != nil {
		return err
	}
	s.session.FindSteps()
	s.memory = s.session.Memory()
	defer func() {
		s.ooms.End()
		s.session.Close()
	}()
	var sockets *listeners
	if err := aboveProbes(func() (err error) { sockets, err = listen(&config); return err }); err != nil {
		return err
	}
	defer sockets.close()
	if sockets.open() {
		log.Warn("everybody who can connect sees the processes of all users (see --web.config.file, or let a firewall or a network policy admit only some)", "addresses", sockets.addresses())
	}
	if err := s.startAlerts(config.Alerts); err != nil {
		return err
	}
	defer s.endAlerts()
	s.verdicts = s.newWatcher()
	if err := s.keepRecords(config.Archive, config.Records); err != nil {
		return err
	}
	s.session.Trace.OOM = s.outOfMemory
	return s.run(ctx, sockets, &config)
}

// run traces and serves until the command's context ends.
func (s *server) run(ctx context.Context, l *listeners, config *Config) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	s.suspendOnSignal(ctx)
	systemd := newNotifier()
	var once sync.Once
	answer := func() {
		once.Do(func() {
			pages := web.New(web.Config{
				Session: s, Version: config.Version, Ready: func() bool { return ctx.Err() == nil && s.isReady() }, Archive: momentsOfArchive(config.Archive, config.Session.Mine),
				TensorBlocks: s.tensorBlocks, Steps: s.session.Steps,
				Hosts: config.Hosts, Users: config.Users, Passwords: l.passwords, MetricsPID: config.MetricsPID, Verdicts: s.verdicts,
			})
			s.pages.Store(pages)
			l.serve(pages, s.log)
			s.ready.Store(true)
			systemd.ready()
			go systemd.watch(ctx, s.alive)
			go config.File.reload(ctx, s, systemd)
		})
	}
	if err := s.await(ctx, answer); err != nil {
		return ended(err)
	}
	open := func() error { return s.openArchive(config.Archive, config.History) }
	if err := aboveProbes(open); err != nil { // not before: it wakes up some times per second
		return err
	}
	defer s.endArchive()
	s.session.Quiet = true // there is no terminal to tell
	s.session.Confined = func() {
		s.began.Store(time.Now().UnixNano())
		s.tracing.Store(true)
		s.log.Info("tracing", "addresses", l.addresses())
		answer()
	}
	if err := s.session.Open(ctx); err != nil {
		return err
	}
	s.stacks = s.session.Stacks()
	if s.archive != nil {
		s.archive.SetStacks(s.tracer())
	}
	go s.keepWithin(ctx)
	go s.forget(ctx)
	go s.keepJudging(ctx)
	go s.watchRefusals(ctx)
	err := s.tracer().Run(ctx)
	s.ready.Store(false)
	systemd.stopping()
	l.shut()
	s.memory.Finish()
	if err := ended(err); err != nil {
		return session.WithRemedy(err)
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
	if err := session.ConfineUntilOpen(); err != nil {
		s.log.Warn("cannot drop privileges", "error", err)
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
	clock.Every(ctx, forgetEvery, func() { s.tracer().Forget(time.Duration(s.keep.Load())) })
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

// alive reports whether events are still booked, and processes found: the turn to book comes within
// a second.
func (s *server) alive() bool {
	if !s.tracing.Load() {
		return true
	}
	if !s.finds(aliveAge) {
		return false
	}
	done := make(chan struct{})
	go func() {
		s.tracer().Sums()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(time.Second):
		return false
	}
}
