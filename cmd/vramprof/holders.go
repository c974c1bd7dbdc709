// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/duration"
	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/procfs"
)

func holdersCommand() *cli.Command {
	return &cli.Command{
		Name:      "holders",
		Usage:     "show which Python variables keep the tensors of a process",
		UsageText: "vramprof holders -p PID [-d TIME] [--tree | --json]",
		Description: "Reads the memory of a running PyTorch process, which is neither stopped nor changed, and names the path that keeps each tensor " +
			"alive, also tensors from before the attach. It sets no probes. The owner of the process may run it. With -d it reads up to six times and shows what grew in between.",
		Flags: []cli.Flag{
			pidFlag("read process `PID`"),
			&cli.StringFlag{Name: "duration", Aliases: []string{"d"}, Usage: "read again for `TIME` (30s, 10m, or plain seconds) and show what grew"},
			&cli.StringFlag{Name: "device", Usage: "only show tensors on `DEVICE`: cuda:0, cpu (default: all GPUs)"},
			&cli.BoolFlag{Name: "no-names", Usage: "show classes, not names of variables, attributes and keys"},
			&cli.StringFlag{Name: "holders-memory", Value: "1GiB", Usage: "copy at most `BYTES` of the process; beyond that, pages are read when needed"},
			&cli.IntFlag{Name: "top", Aliases: []string{"T"}, Value: 10, Usage: "list at most `N` holders, or branches of each fork (default: 10)"},
			&cli.BoolFlag{Name: "tree", Usage: "write a tree of the paths' steps"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
		},
		Action: showHolders,
	}
}

// leastCopy is the least --holders-memory, in bytes.
const leastCopy = 16 << 20

var deviceName = regexp.MustCompile(`^(cpu|cuda:\d{1,3})$`)

func showHolders(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	pid, wait, options, err := holdersOptions(c)
	if err != nil {
		return err
	}
	confine(c, session.Reading{})
	started := procfs.StartTicks(pid)
	h := report.Holders{PID: pid, Comm: procfs.Comm(pid), Device: c.String("device")}
	said := awaitRead(c, pid)
	h.Result, err = walk(c.Context, pid, options)
	if said(); err != nil {
		return err
	}
	if wait > 0 {
		if err := walkAgain(c, &h, wait, started, options); err != nil { // what was read is still worth its wait
			return errors.Join(writeHolders(c, &h), err)
		}
	}
	return writeHolders(c, &h)
}

// walksAgain is how often holders -d reads a process again, so that levels which rise by chance are
// rare: see report.LeastWalks.
const walksAgain = 5

// walkAgain reads a process again at even steps of a time, and at its end. A walk that takes longer
// than a step has the next ones left out, as long as there are enough to show growth.
func walkAgain(c *cli.Context, h *report.Holders, wait time.Duration, started uint64, options holders.Options) error {
	first, end := h.Result, time.Now().Add(wait)
	for step := walksAgain - 1; step >= 0; step-- {
		at := end.Add(-wait * time.Duration(step) / walksAgain)
		if step > 0 && time.Now().After(at) && h.Walks()+step >= report.LeastWalks {
			continue
		}
		select {
		case <-c.Context.Done(): // Ctrl-C: compare with what there is now
			step = 0
		case <-time.After(time.Until(at)):
		}
		said := awaitRead(c, h.PID)
		later, err := walk(context.WithoutCancel(c.Context), h.PID, options)
		said()
		switch {
		case err != nil:
			return err
		case procfs.StartTicks(h.PID) != started: // the pid may belong to another process
			return fmt.Errorf("process %d ended before it was read again", h.PID)
		case !later.SameProgram(first):
			return fmt.Errorf("process %d executed another program before it was read again", h.PID)
		}
		if h.Before != nil {
			h.During = append(h.During, h.Result)
		}
		h.Before, h.Result = first, later
	}
	return nil
}

// awaitRead says on a terminal that the memory of a process is read, if that takes long.
func awaitRead(c *cli.Context, pid uint32) (end func()) {
	return terminal.Await(c.App.ErrWriter, fmt.Sprintf("reading the memory of process %d", pid))
}

func writeHolders(c *cli.Context, h *report.Holders) error {
	if c.Bool("json") {
		return reportjson.WriteHolders(c.App.Writer, h)
	}
	write := text.WriteHolders
	if c.Bool("tree") {
		write = text.WriteHolderTree
	}
	return write(c.App.Writer, h, report.Options{Top: c.Int("top")}, terminal.Screen())
}

func holdersOptions(c *cli.Context) (pid uint32, wait time.Duration, o holders.Options, err error) {
	if !c.IsSet("pid") {
		return 0, 0, o, fault.Usage(errors.New("holders needs a process: -p PID (vramprof ps lists them)"))
	}
	pid = pidOf(c)
	if err := session.CheckProcess(pid); err != nil {
		return 0, 0, o, err
	}
	if wait, err = duration.Parse(c.String("duration")); err != nil {
		return 0, 0, o, err
	}
	if o.MaxMemory, err = humanize.ParseBytes(c.String("holders-memory")); err != nil || o.MaxMemory < leastCopy {
		return 0, 0, o, fault.Usage(fmt.Errorf("--holders-memory: %q is not a number of bytes from %s on (256MiB, 4GiB)", c.String("holders-memory"), format.Bytes(leastCopy)))
	}
	if c.Bool("tree") && c.Bool("json") {
		return 0, 0, o, fault.Usage(errors.New("--tree and --json exclude each other (the JSON has the steps of each path)"))
	}
	device := c.String("device")
	if device != "" && !deviceName.MatchString(device) {
		return 0, 0, o, fault.Usage(fmt.Errorf("unknown device %q (devices: cpu, cuda:0, cuda:1, …)", device))
	}
	o.Host, o.HideNames = device == "cpu", c.Bool("no-names")
	return pid, wait, o, nil
}

// walk reads a process once.
func walk(ctx context.Context, pid uint32, o holders.Options) (*holders.Result, error) {
	result, err := deadline.Walk(ctx, holders.Limits(), func(ctx context.Context) (*holders.Result, error) {
		process, err := peek.Open(int(pid))
		if err != nil {
			return nil, err
		}
		defer process.Close()
		return holders.Walk(ctx, process, o)
	})
	if err != nil {
		return nil, holdersError(pid, err)
	}
	return result, nil
}

// holdersError adds the remedy, and the exit code.
func holdersError(pid uint32, err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, fs.ErrPermission):
		return fault.Denied(pid, err)
	case errors.Is(err, peek.ErrNoPython), errors.Is(err, holders.ErrNoTensors):
		return fault.New(fault.NoProcess, fmt.Errorf("process %d: %w", pid, err))
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted while process %d was read", pid)
	}
	return fmt.Errorf("process %d: %w", pid, err)
}
