// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/serve/web"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/report/tui"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// defaultSocket is the socket of a vramprof serve without --run-dir.
var defaultSocket = filepath.Join(defaultRunDir, socketName)

// connectFlag returns the flag of commands that can ask a running vramprof serve.
func connectFlag() cli.Flag {
	return &cli.GenericFlag{
		Name: "connect", Value: &socketValue{},
		Usage: "ask the running vramprof serve instead of tracing; --connect=SOCKET: another than " + defaultSocket,
	}
}

// socketValue is "--connect" or "--connect=SOCKET".
type socketValue struct{ path string }

func (v *socketValue) String() string { return v.path }

// IsBoolFlag tells package flag that the value is optional.
func (*socketValue) IsBoolFlag() bool { return true }

func (v *socketValue) Set(text string) error {
	switch text {
	case "true": // --connect
		v.path = defaultSocket
	case "":
		return errors.New("it is empty")
	default:
		v.path = text
		if info, err := os.Stat(text); err == nil && info.IsDir() { // --run-dir
			v.path = filepath.Join(text, socketName)
		}
	}
	return nil
}

// remote is a running vramprof serve.
type remote struct {
	*web.Client
	path string
	pids []uint32 // only these processes; nil: all

	only archive.Filter // likewise
}

// What errors say after "needs a capture" with --connect.
const (
	onlyPresent = ", and --connect shows the present"
	hasPast     = " (vramprof report /var/lib/vramprof has the past)"
)

// connecting reports whether the command asks a running vramprof serve.
func connecting(c *cli.Context) bool { return c.IsSet("connect") }

// connectTo reads the options of a command that asks a running vramprof serve.
func connectTo(c *cli.Context) (*remote, error) {
	if c.Args().Present() {
		return nil, fault.Usage(fmt.Errorf("unexpected argument %q: --connect asks vramprof serve (another socket: --connect=SOCKET)", c.Args().First()))
	}
	for _, f := range traceFlags() {
		name := f.Names()[0]
		if means := name == "pid" || name == "verbose" && c.Command.Name == "leaks"; c.IsSet(name) && !means {
			return nil, fault.Usage(fmt.Errorf("--%s is only for tracing, and --connect does not trace", name))
		}
	}
	if err := withoutCapture(c, onlyPresent+hasPast, "at", "between", noLimits); err != nil {
		return nil, err
	}
	pids, err := pidsOf(c)
	if err != nil {
		return nil, err
	}
	path := c.Generic("connect").(*socketValue).path
	return &remote{Client: web.NewClient(path, version), path: path, pids: pids, only: filterOf(c)}, nil
}

// books returns the server's books of now, or those of the chosen processes.
func (r *remote) books(ctx context.Context, whole bool) (*ledger.Snapshot, error) {
	s, err := r.Books(ctx, whole)
	if err != nil {
		return nil, fault.New(r.kind(err), r.explain(err))
	}
	if r.pids == nil && r.only == (archive.Filter{}) {
		return s, nil
	}
	s = s.Only(func(p *ledger.Process) bool {
		return (r.pids == nil || slices.Contains(r.pids, p.PID)) && source.Passes(r.only, p)
	})
	if len(s.Processes) == 0 && r.pids == nil {
		return nil, fault.New(fault.NoProcess, fmt.Errorf("no process in the books of vramprof serve is %s", source.FilterText(r.only)))
	}
	for _, pid := range r.pids {
		if !slices.ContainsFunc(s.Processes, func(p ledger.Process) bool { return p.PID == pid }) {
			return nil, fault.New(fault.NoProcess, fmt.Errorf("process %d is not in the books of vramprof serve (it does not use CUDA, or it ended long ago)", pid))
		}
	}
	return s, nil
}

func (r *remote) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("connect to %s: vramprof serve is not running (systemctl start vramprof, or trace without --connect)", r.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("connect to %s: permission denied (only root and the user of vramprof serve may)", r.path)
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return errors.New("vramprof serve ended, or refused the connection")
	}
	return err
}

func (*remote) kind(err error) fault.Kind {
	if errors.Is(err, fs.ErrPermission) {
		return fault.NoPrivilege
	}
	return fault.Failed
}

// reportRemote is report --connect.
func reportRemote(c *cli.Context) error {
	r, err := connectTo(c)
	if err != nil {
		return err
	}
	view := json.View{Name: c.String("view"), Stacks: mine(c, r)}
	if slices.Contains(playedViews, view.Name) || c.IsSet("html") {
		return fault.Usage(fmt.Errorf("the views %s and --html need a capture%s%s", strings.Join(playedViews, " and "), onlyPresent, hasPast))
	}
	if view.Snapshot, err = r.books(c.Context, true); err != nil {
		return err
	}
	return printView(c, view, viewOptions(c))
}

// leaksRemote is where leaks --connect gets the books from.
func leaksRemote(c *cli.Context) (*ledger.Snapshot, callstack.Stacks, func(), error) {
	r, err := connectTo(c)
	if err == nil && c.IsSet("oom-dir") {
		err = fault.Usage(errors.New("--oom-dir and --connect exclude each other"))
	}
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := r.books(c.Context, true)
	return s, mine(c, r), func() {}, err
}

// exportRemote is export --connect: it does what can fail before anything is written, and returns
// the function that writes.
func exportRemote(c *cli.Context, format output.Format) (func(io.Writer) error, error) {
	r, err := connectTo(c)
	if err != nil {
		return nil, err
	}
	if format.NeedsCapture() {
		able := output.Exported.Only(func(f output.Format) bool { return !f.NeedsCapture() })
		return nil, fault.Usage(fmt.Errorf("--format %s needs a capture%s (formats: %s)", format.Name, onlyPresent, able))
	}
	s, err := r.books(c.Context, true)
	if err != nil {
		return nil, err
	}
	return func(w io.Writer) error { return format.Write(w, s, mine(c, r)) }, nil
}

// topRemote is top --connect.
func topRemote(c *cli.Context) error {
	r, err := connectTo(c)
	if err != nil {
		return err
	}
	for _, name := range []string{"speed", "oom-dir", "no-oom"} {
		if c.IsSet(name) {
			return fault.Usage(fmt.Errorf("--%s and --connect exclude each other", name))
		}
	}
	stacks, once := mine(c, r), c.Bool("once") || !screenPossible()
	first, err := r.books(c.Context, once)
	if err != nil {
		return err
	}
	if once {
		return writeOnce(c, first, stacks)
	}
	sc, here, err := screenHere(c, stacks)
	if err != nil {
		return err
	}
	defer here.Close()
	ctx, end := context.WithCancel(c.Context)
	defer end()
	followed := make(chan error, 1)
	go func() {
		followed <- r.follow(ctx, sc, refresh{stacks: stacks, least: screenPause})
		end() // vramprof serve may have ended
	}()
	err = sc.run(ctx)
	end()
	if e := <-followed; err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	last, err := r.books(c.Context, true)
	if err != nil {
		return err
	}
	return text.WriteSummary(c.App.Writer, last, stacks, report.Options{}, terminal.Screen())
}

// follow shows the server's books until ctx ends, or until the server does.
func (r *remote) follow(ctx context.Context, sc *liveScreen, f refresh) error {
	var failed error
	for {
		snapshot, verdicts := f.next(func() *ledger.Snapshot {
			var s *ledger.Snapshot
			if s, failed = r.books(ctx, false); failed != nil {
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
		sc.program.Send(tui.Moment{Snapshot: snapshot, Judged: verdicts, OOMs: r.OOMs(), Stacks: f.stacks})
		if !f.wait(ctx) {
			return nil
		}
	}
}

// mentionServer prints a note before a command attaches to processes that vramprof serve traces
// already.
func mentionServer(c *cli.Context) {
	advice, ok := map[string]string{
		"top": "--connect asks it", "report": "--connect asks it", "leaks": "--connect asks it", "export": "--connect asks it",
		"record": "vramprof report --connect shows what it knows, and its archive has the past,",
	}[c.Command.Name]
	if !ok || afterDashes(c) {
		return
	}
	conn, err := net.DialTimeout("unix", defaultSocket, mentionTime)
	if err != nil {
		return
	}
	conn.Close()
	fmt.Fprintf(c.App.ErrWriter, "vramprof: vramprof serve is running: %s instead of attaching again\n", advice)
}

const mentionTime = 100 * time.Millisecond
