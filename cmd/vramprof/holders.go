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
			"alive, also tensors from before the attach. It sets no probes. The owner of the process may run it. With -d it reads twice and shows what grew in between.",
		Flags: []cli.Flag{
			&cli.UintFlag{Name: "pid", Aliases: []string{"p"}, Usage: "read process `PID`"},
			&cli.StringFlag{Name: "duration", Aliases: []string{"d"}, Usage: "read again after `TIME` (30s, 10m, or plain seconds) and show what grew"},
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
	started := procfs.StartTicks(pid)
	h := report.Holders{PID: pid, Comm: procfs.Comm(pid), Device: c.String("device")}
	said := awaitRead(c, pid)
	h.Result, err = walk(c.Context, pid, options)
	if said(); err != nil {
		return err
	}
	if wait > 0 {
		select {
		case <-c.Context.Done(): // Ctrl-C: compare with what there is now
		case <-time.After(wait):
		}
		said := awaitRead(c, pid)
		later, err := walk(context.WithoutCancel(c.Context), pid, options)
		said()
		switch {
		case err != nil:
		case procfs.StartTicks(pid) != started: // the pid may belong to another process
			err = fmt.Errorf("process %d ended before it was read again", pid)
		case !later.SameProgram(h.Result):
			err = fmt.Errorf("process %d executed another program before it was read again", pid)
		}
		if err != nil { // the first walk is still worth its wait
			return errors.Join(writeHolders(c, &h), err)
		}
		h.Before, h.Result = h.Result, later
	}
	return writeHolders(c, &h)
}

// awaitRead says on a terminal that the memory of a process is read, if that takes long.
func awaitRead(c *cli.Context, pid uint32) (end func()) {
	return terminal.Await(c.App.ErrWriter, fmt.Sprintf("vramprof: reading the memory of process %d", pid))
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
	pid = uint32(c.Uint("pid"))
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

// walkPatience limits a walk with the opening of the process's files, which can lie on a file
// system of its own.
const walkPatience = holders.DefaultTime + 10*time.Second

// walk reads a process once.
func walk(ctx context.Context, pid uint32, o holders.Options) (*holders.Result, error) {
	result, err := deadline.Call(walkPatience, func() (*holders.Result, error) {
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
		return fault.New(fault.NoPrivilege, fmt.Errorf("process %d: %w (run vramprof as the process's user or as root)", pid, err))
	case errors.Is(err, peek.ErrNoPython), errors.Is(err, holders.ErrNoTensors):
		return fault.New(fault.NoProcess, fmt.Errorf("process %d: %w", pid, err))
	}
	return fmt.Errorf("process %d: %w", pid, err)
}
