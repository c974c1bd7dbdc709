// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/oomrecord"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/tui"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom"
)

// The screen is redrawn each second, or less often where that would cost more than its share of a
// processor, 1/30 for the books and 1/100 for verdicts.
const (
	screenPause  = time.Second
	booksShare   = 30
	verdictShare = 100

	longestPause, longestJudgePause = 10 * time.Second, time.Minute
)

// screenRate is how often a second the terminal is looked after. Each time costs, even if nothing
// has changed; a key shows after at most so long.
const screenRate = 15

// maxScreenOOMs is how many out-of-memory errors wait for the next moment.
const maxScreenOOMs = 100

// Possible reports whether stdout is a terminal that can be redrawn, with keys to read.
func Possible() bool {
	if !terminal.Is(os.Stdout) || os.Getenv("TERM") == "dumb" {
		return false
	}
	if term.IsTerminal(int(os.Stdin.Fd())) {
		return true
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0) // keys are read from it
	if err != nil {
		return false
	}
	tty.Close()
	return true
}

// liveScreen is the terminal while it shows a session.
type liveScreen struct {
	program *tea.Program
	others  others
	command bool // vramprof has started one, in its process group

	mu   sync.Mutex
	ooms []report.OOM
}

// screenHere returns a screen whose key w writes a profile into the current folder, which the
// caller closes.
func screenHere(stacks callstack.Stacks, o Options) (*liveScreen, output.Folder, error) {
	here, err := output.OpenFolder(".")
	if err != nil {
		return nil, here, fault.New(fault.Failed, fmt.Errorf("open the current folder: %w", err))
	}
	view := o.view()
	view.Profile = profileWriter(here, stacks)
	return newScreen(view, o.Restore), here, nil
}

// newScreen returns a screen, and tells restore what gives the terminal back.
func newScreen(o tui.Options, restore func(func())) *liveScreen {
	s := &liveScreen{}
	s.program = tea.NewProgram(tui.New(o), tea.WithOutput(os.Stdout), tea.WithoutSignalHandler(), tea.WithFilter(s.filter), tea.WithFPS(screenRate))
	restore(func() { _ = s.program.ReleaseTerminal() })
	return s
}

// filter sees messages before the model. While the terminal is a screen, its keys send no signals.
func (s *liveScreen) filter(_ tea.Model, msg tea.Msg) tea.Msg {
	if press, ok := msg.(tea.KeyPressMsg); ok {
		switch {
		case press.String() == "ctrl+c" && s.command:
			_ = unix.Kill(0, unix.SIGINT)
		case press.String() == "ctrl+z":
			return tea.SuspendMsg{}
		}
	}
	return msg
}

// run shows the screen until the user ends it, or ctx. Then the terminal is as before.
func (s *liveScreen) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.program.Quit)
	defer stop()
	if _, err := s.program.Run(); err != nil {
		return fmt.Errorf("show the screen: %w (use --once)", err)
	}
	return nil
}

// follow shows the books of now until ctx ends.
func (s *liveScreen) follow(ctx context.Context, of *session.Session, log *Log) {
	stacks := of.Stacks()
	r := refresh{stacks: stacks, least: screenPause}
	for {
		snapshot, verdicts := r.next(of.Glance)
		s.program.Send(tui.Moment{Snapshot: snapshot, Judged: verdicts, OOMs: s.takeOOMs(), Steps: of.Steps(), Others: s.others.latest(ctx), Stacks: stacks, Note: log.note()})
		if !r.wait(ctx) {
			return
		}
	}
}

// refresh makes what a screen shows, and keeps what that costs within its shares.
type refresh struct {
	stacks   callstack.Stacks
	least    time.Duration // between books
	verdicts *tui.Verdicts

	begin             time.Time
	books, judging    time.Duration // cost of the last
	pause, judgePause time.Duration
	judged            time.Time
}

// next returns the books, and verdicts that may be older. The first books name many stacks, so
// costs are the lower of two.
func (r *refresh) next(books func() *ledger.Snapshot) (*ledger.Snapshot, *tui.Verdicts) {
	r.begin = time.Now()
	s := books()
	now := time.Now()
	cost := now.Sub(r.begin)
	r.books, r.pause = cost, max(r.least, min(booksShare*min(cost, r.books), longestPause))
	if now.Sub(r.judged) >= r.judgePause {
		r.verdicts = tui.Judge(s, r.stacks)
		r.judged = time.Now()
		cost = r.judged.Sub(now)
		r.judging, r.judgePause = cost, min(verdictShare*min(cost, r.judging), longestJudgePause)
	}
	return s, r.verdicts
}

// wait waits until the next books are due. It returns false when ctx has ended.
func (r *refresh) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(max(r.pause-time.Since(r.begin), r.least/10)):
		return true
	}
}

func (s *liveScreen) takeOOMs() []report.OOM {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.ooms
	s.ooms = nil
	return list
}

func (s *liveScreen) addOOM(o report.OOM) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ooms) < maxScreenOOMs {
		s.ooms = append(s.ooms, o)
	}
}

// showOOMs has the screen show each out-of-memory error of the session, which is recorded as well.
func (s *liveScreen) showOOMs(session *session.Session) {
	record := session.Trace.OOM
	session.Trace.OOM = func(o oom.Error) {
		s.addOOM(*oomrecord.Report(o))
		if record != nil {
			record(o)
		}
	}
}
