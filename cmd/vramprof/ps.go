// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/pslist"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/internal/terminal"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/preflight"
)

func psCommand() *cli.Command {
	return &cli.Command{
		Name:      "ps",
		Usage:     "list the processes that use CUDA, and their GPU memory",
		UsageText: "vramprof ps [--reap-hints] [--json]",
		Description: "Also lists processes that NVML does not: those that have device files of the driver or dma-bufs open, defunct ones whose threads live, and the server of MPS. " +
			"What a GPU has in use beyond its processes is a row.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "reap-hints", Usage: "add how a person can end each process, and what that loses; does nothing itself"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
		},
		Action: ps,
	}
}

func ps(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	env, err := preflight.ReadHost()
	if err != nil {
		return err
	}
	env.SelfTest = nil // ps probes nothing
	if _, err := session.RequireHost(c.Context, env); err != nil {
		return err
	}
	list, err := pslist.Read(c.Context, func(err error) { fmt.Fprintf(c.App.ErrWriter, "vramprof: %v\n", err) })
	if err != nil {
		return err
	}
	if c.Bool("reap-hints") {
		pslist.Hint(list)
	}
	if c.Bool("json") {
		if err := reportjson.WriteProcesses(c.App.Writer, list); err != nil {
			return err
		}
	}
	if len(list.Processes) == 0 {
		return tracer.ErrNoProcess
	}
	if c.Bool("json") {
		return nil
	}
	return pslist.Write(c.App.Writer, list, terminal.Width())
}
