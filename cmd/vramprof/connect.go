// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/remote"
	"github.com/vramprof/vramprof/internal/serve/web"
	"github.com/vramprof/vramprof/internal/views"
	"github.com/vramprof/vramprof/report/json"
)

// connectFlag returns the flag of commands that can ask a running vramprof serve.
func connectFlag(usage string) cli.Flag {
	return &cli.GenericFlag{Name: "connect", Value: &socketValue{}, Usage: usage + "; --connect=SOCKET: another than " + remote.DefaultSocket}
}

const insteadOfTracing = "ask the running vramprof serve instead of tracing"

// socketValue is "--connect" or "--connect=SOCKET".
type socketValue struct{ path string }

func (v *socketValue) String() string { return v.path }

// IsBoolFlag tells package flag that the value is optional.
func (*socketValue) IsBoolFlag() bool { return true }

func (v *socketValue) Set(text string) error {
	switch text {
	case "true": // --connect
		v.path = remote.DefaultSocket
	case "":
		return errors.New("it is empty")
	default:
		v.path = text
		if info, err := os.Stat(text); err == nil && info.IsDir() { // --run-dir
			v.path = filepath.Join(text, web.SocketName)
		}
	}
	return nil
}

// What errors say after "needs a capture" with --connect.
const (
	onlyPresent = ", and --connect shows the present"
	hasPast     = " (vramprof report /var/lib/vramprof has the past)"
)

// connecting reports whether the command asks a running vramprof serve.
func connecting(c *cli.Context) bool { return c.IsSet("connect") }

// connectTo reads the options of a command that asks a running vramprof serve.
func connectTo(c *cli.Context) (*remote.Server, error) {
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
	return remote.New(path, version, pids, filterOf(c)), nil
}

// reportRemote is report --connect.
func reportRemote(c *cli.Context) error {
	r, err := connectTo(c)
	if err != nil {
		return err
	}
	view := json.View{Name: c.String("view"), Stacks: mine(c, r)}
	if slices.Contains(views.Played, view.Name) || c.IsSet("html") {
		return fault.Usage(fmt.Errorf("the views %s and --html need a capture%s%s", strings.Join(views.Played, " and "), onlyPresent, hasPast))
	}
	if view.Snapshot, err = r.Books(c.Context, true); err != nil {
		return err
	}
	return viewsOf(c).Print(view)
}

// leaksRemote is where leaks --connect gets the books from.
func leaksRemote(c *cli.Context) (from leaksFrom, err error) {
	r, err := connectTo(c)
	if err == nil && c.IsSet("oom-dir") {
		err = fault.Usage(errors.New("--oom-dir and --connect exclude each other"))
	}
	if err != nil {
		return from, err
	}
	s, err := r.Books(c.Context, true)
	return leaksFrom{snapshot: s, stacks: mine(c, r), done: func() {}}, err
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
	s, err := r.Books(c.Context, true)
	if err != nil {
		return nil, err
	}
	return func(w io.Writer) error { return format.Write(w, s, mine(c, r)) }, nil
}
