// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"

	"github.com/vramprof/vramprof/internal/remote"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/report/tui"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Remote shows the books of a running vramprof serve on the terminal, and then the summary.
func Remote(ctx context.Context, r *remote.Server, stacks callstack.Stacks, o Options) error {
	sc, here, err := screenHere(stacks, o)
	if err != nil {
		return err
	}
	defer here.Close()
	sc.others.off = o.Alone
	following, end := context.WithCancel(ctx)
	defer end()
	followed := make(chan error, 1)
	go func() {
		followed <- follow(following, r, sc, refresh{stacks: stacks, least: screenPause})
		end() // vramprof serve may have ended
	}()
	err = sc.run(following)
	end()
	if e := <-followed; err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	last, err := r.Books(ctx, true)
	if err != nil {
		return err
	}
	return text.WriteSummary(o.Stdout, last, stacks, report.Options{}, terminal.Screen())
}

// follow shows the server's books until ctx ends, or until the server does.
func follow(ctx context.Context, r *remote.Server, sc *liveScreen, f refresh) error {
	var failed error
	for {
		snapshot, verdicts := f.next(func() *ledger.Snapshot {
			var s *ledger.Snapshot
			if s, failed = r.Books(ctx, false); failed != nil {
				return &ledger.Snapshot{}
			}
			return s
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case failed != nil:
			return failed
		}
		sc.program.Send(tui.Moment{Snapshot: snapshot, Judged: verdicts, OOMs: r.OOMs(), Others: sc.others.latest(ctx), Stacks: f.stacks})
		if !f.wait(ctx) {
			return nil
		}
	}
}
