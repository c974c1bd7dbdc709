// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"time"

	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/replay"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/report/tui"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Play shows a capture on the terminal from a time on, until the user ends it, and then the
// summary.
func Play(ctx context.Context, r *capture.Reader, stacks callstack.Stacks, from uint64, speed float64, o Options) error {
	sc, here, err := screenHere(stacks, o)
	if err != nil {
		return err
	}
	defer here.Close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	trainings, err := playedSteps(r)
	if err != nil {
		return err
	}
	p := &playing{r: r, steps: trainings, ledger: r.NewLedger(), player: r.Player(), stacks: stacks, speed: speed, at: from}
	var last *ledger.Snapshot
	var playErr error
	over := make(chan struct{})
	go func() {
		defer close(over)
		if last, playErr = p.run(ctx, sc); playErr != nil {
			end()
		}
	}()
	err = sc.run(ctx)
	end()
	<-over
	if err = errors.Join(playErr, err); err != nil {
		return err
	}
	peaks, err := replay.Peaks(r, last)
	if err != nil {
		return err
	}
	return text.WriteSummary(o.Stdout, last, stacks, report.Options{Steps: trainings, Peaks: peaks}, terminal.Screen())
}

// playedSteps returns the steps of the trainings in a capture, unless it is long.
func playedSteps(r *capture.Reader) (*steps.Session, error) {
	s, err := r.Snapshot(r.End())
	if err != nil {
		return nil, err
	}
	return replay.Steps(r, s, replay.BriefEvents)
}

// playPause is how often a capture that is played is redrawn.
const playPause = 250 * time.Millisecond

// playing is a capture that goes on with time.
type playing struct {
	r      *capture.Reader
	ledger *ledger.Ledger
	player *capture.Player
	stacks callstack.Stacks
	steps  *steps.Session
	speed  float64
	at     uint64       // ns of the session's clock
	ooms   []report.OOM // since the last moment
}

// run shows one moment after another until ctx ends, and returns the last one. At the end of the
// capture it waits.
func (p *playing) run(ctx context.Context, sc *liveScreen) (*ledger.Snapshot, error) {
	r := refresh{stacks: p.stacks, least: playPause}
	from, left := p.at, float64(p.r.End()-p.at) // a speed may be infinite
	for began := time.Now(); ; p.at = from + uint64(min(float64(time.Since(began))*p.speed, left)) {
		if err := p.player.PlayTo(p.at, p); err != nil {
			return nil, err
		}
		ended := p.at >= p.r.End()
		if ended {
			r.judgePause = 0
		}
		snapshot, verdicts := r.next(func() *ledger.Snapshot { return p.snapshot(ended) })
		sc.program.Send(tui.Moment{Snapshot: snapshot, Judged: verdicts, OOMs: p.ooms, Stacks: p.stacks, Steps: p.steps, Speed: p.speed, Ended: ended})
		p.ooms = nil
		if ended {
			<-ctx.Done()
			return snapshot, nil
		}
		if !r.wait(ctx) {
			return snapshot, nil
		}
	}
}

func (p *playing) snapshot(ended bool) *ledger.Snapshot {
	s := p.r.SnapshotOf(p.ledger, p.at)
	p.ledger.AddHighest(s)
	if ended {
		p.ledger.AddStuck(s)
		p.ledger.AddPeaks(s)
	}
	return s
}

// Apply implements ledger.Books.
func (p *playing) Apply(e *ledger.Event) {
	p.ledger.Apply(e)
	if e.Op == ledger.OutOfMemory && len(p.ooms) < maxScreenOOMs {
		p.ooms = append(p.ooms, report.OOM{PID: e.PID, Time: e.Time, Stack: e.Stack, API: e.API, Kind: e.Kind, Device: e.Device, Size: e.Size})
	}
}

// Tell implements ledger.Books.
func (p *playing) Tell(in ledger.Input) { p.ledger.Tell(in) }
