// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/pslist"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/internal/terminal"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/nvml"
)

func psCommand() *cli.Command {
	return &cli.Command{
		Name:      "ps",
		Usage:     "list the processes that use CUDA, and their GPU memory",
		UsageText: "vramprof ps [--reap-hints] [--connect] [--json]",
		Description: "Also lists processes that NVML does not: those that have device files of the driver or dma-bufs open, defunct ones whose threads live, and the server of MPS. " +
			"Memory of a GPU that belongs to no process is a row. Any user may run it: it lists what that user may see, and counts the processes that it could not read.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "reap-hints", Usage: "add how a person can end each process, and what that loses; does nothing itself"},
			connectFlag("ask a running vramprof serve which processes have imported memory of others"),
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
		},
		Action: ps,
	}
}

func ps(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	var books *ledger.Snapshot
	if connecting(c) {
		r, err := connectTo(c)
		if err != nil {
			return err
		}
		if books, err = r.Books(c.Context, true); err != nil {
			return err
		}
	}
	warn := func(err error) { fmt.Fprintf(c.App.ErrWriter, "vramprof: %v\n", err) }
	list, err := pslist.Read(c.Context, warn, func(driver *nvml.Driver) {
		confine(c, session.Reading{Driver: driver, Compares: true})
	})
	if err != nil {
		return err
	}
	if books != nil {
		pslist.AddImports(list, books)
	}
	if c.Bool("reap-hints") {
		pslist.Hint(list)
	}
	if c.Bool("json") {
		if err := reportjson.WriteProcesses(c.App.Writer, list); err != nil {
			return err
		}
	}
	if !c.Bool("json") {
		if err := pslist.Write(c.App.Writer, list, terminal.Width()); err != nil {
			return err
		}
	}
	if len(list.Processes) == 0 && list.Unread > 0 {
		return fault.New(fault.NoProcess, errors.New("no process that could be read uses CUDA"))
	}
	if len(list.Processes) == 0 {
		return tracer.ErrNoProcess
	}
	return nil
}
