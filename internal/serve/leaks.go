// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"time"

	"github.com/vramprof/vramprof/internal/serve/notify"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/report/watch"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/quota"
	"github.com/vramprof/vramprof/tracer/ratelimit"
)

const (
	judgeEvery = time.Minute // if nobody scrapes metrics or looks at the page, which is more often

	maxLeaks    = 1024 // lines that are known to leak, shared by quota.Quota
	leaksLogged = 60   // per minute, shared by ratelimit.Halved
)

// leakKey identifies a line of a process.
type leakKey struct {
	process  ledger.ProcessID
	function string
	file     string
	line     int
}

// knownLeaks are the lines that were told of. A process may have as many lines that leak as it
// likes.
type knownLeaks struct {
	lines  map[leakKey]bool
	places quota.ByProcess
	limit  *ratelimit.Limiter
}

func newKnownLeaks() *knownLeaks {
	return &knownLeaks{lines: map[leakKey]bool{}, places: quota.NewByProcess(maxLeaks), limit: ratelimit.New(ratelimit.Halved(leaksLogged))}
}

// take reports whether a line is to be told of now. It is not, and may be later, if the process or
// its user has used up its share.
func (k *knownLeaks) take(now time.Time, key leakKey, user uint32) bool {
	if !k.places.Take(key.process.PID, user) {
		return false
	}
	if !k.limit.Allow(now, key.process.PID, user) {
		k.places.Give(key.process.PID)
		return false
	}
	k.lines[key] = true
	return true
}

// forget drops the lines of processes that are not alive.
func (k *knownLeaks) forget(alive func(ledger.ProcessID) bool) {
	for key := range k.lines {
		if !alive(key.process) {
			delete(k.lines, key)
			k.places.Give(key.process.PID)
		}
	}
}

// newWatcher returns the session's Watcher, which has lines of code that begin to leak logged, and
// --on-leak run.
func (s *server) newWatcher() *watch.Watcher {
	known, planes, before := newKnownLeaks(), knownPlanes{}, 0
	return watch.New(s, func(snapshot *ledger.Snapshot, j *report.Judgement) {
		gpus := json.NewGrowth(snapshot, s, j)
		s.tellPlanes(planes, snapshot, j, gpus)
		beyond := s.tellLeaks(known, snapshot, j.Groups, gpus)
		if beyond > before {
			s.log.Warn("further lines leak that are not logged, or later", "lines", beyond)
		}
		before = beyond
	})
}

// keepJudging has the books judged, also if nobody else asks, until ctx ends.
func (s *server) keepJudging(ctx context.Context) {
	clock.Every(ctx, judgeEvery, func() {
		if s.verdicts.IsDue() {
			s.verdicts.Offer(s.Glance())
		}
	})
}

// tellLeaks tells the lines that leak and were not known to. It returns how many more there are
// than may be told of now.
func (s *server) tellLeaks(known *knownLeaks, snapshot *ledger.Snapshot, groups []verdict.Group, gpus []json.GPUGrowthReport) (beyond int) {
	alive := map[ledger.ProcessID]bool{}
	for i := range snapshot.Processes {
		alive[snapshot.Processes[i].ID()] = true
	}
	known.forget(func(p ledger.ProcessID) bool { return alive[p] })
	for i := range groups {
		g := &groups[i]
		p := &snapshot.Processes[g.Process]
		key := leakKey{p.ID(), g.Line.Function, g.Line.File, g.Line.Line}
		switch {
		case g.Class != verdict.Leaking || known.lines[key] || p.End != 0:
		case known.take(time.Now(), key, p.User):
			s.leaks(snapshot, g, gpus)
		default:
			beyond++
		}
	}
	return beyond
}

func (s *server) leaks(snapshot *ledger.Snapshot, g *verdict.Group, gpus []json.GPUGrowthReport) {
	p := &snapshot.Processes[g.Process]
	x := alertReport{
		Event: onLeak, Time: snapshot.Wall, Host: s.host, PID: p.PID, Comm: untrusted.Clean(p.Comm), Workload: json.NewWorkload(p.Workload),
		Device: format.Device(g.Device, g.Kind), BytesPerSecond: g.Rate.Value, LiveBytes: g.LiveBytes, LiveAllocations: g.LiveObjects,
		FullInSeconds: g.UntilFull.Seconds(), Evidence: untrusted.Clean(g.Evidence),
	}
	if training := s.session.Steps().Of(p.PID, p.Begin, p.End); training != nil {
		if rate := training.PerStep(g.PerSecond()); rate.Low == rate.High {
			x.BytesPerStep = rate.Low
		}
	}
	if n := snapshot.BalanceOf(g.Process, g.Device); n >= 0 {
		x.GPU = growthOf(gpus, snapshot.Balances[n].UUID)
	}
	if len(g.Sites) > 0 {
		site := &snapshot.Sites[g.Sites[0]]
		x.API = untrusted.Clean(site.API)
		s.addStack(&x, site.Stack)
	}
	x.Line = frames.Text(&g.Line, alertColumns)
	s.log.Warn("a line leaks", "pid", x.PID, "comm", x.Comm, "workload", x.Workload, "device", x.Device, "line", x.Line, "bytes_per_second", x.BytesPerSecond, "bytes_per_step", x.BytesPerStep)
	s.alerts.Tell(onLeak, notify.Source{PID: p.PID, User: p.User}, x)
}
