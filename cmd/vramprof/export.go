// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/report/export"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/replay"
	"github.com/vramprof/vramprof/tracer/capture"
)

// exportFormats maps each format to the ending of its files.
var exportFormats = map[string]string{"pprof": ".pb.gz", "folded": ".folded", "chrome": ".json", "torch": ".pickle"}

func exportCommand() *cli.Command {
	return &cli.Command{
		Name:      "export",
		Usage:     "convert a capture, or trace now, for other tools",
		UsageText: "vramprof export [OPTIONS] FILE | -p PID | --name REGEX | -a | --connect",
		Description: "FILE is a capture that \"vramprof record -o FILE.vram\" wrote. With -p, --name or -a instead, processes are traced as by record. Formats: pprof (also for speedscope and Perfetto), " +
			"folded (flame graph tools), chrome (timeline for Perfetto and chrome://tracing), torch (memory snapshot of one process, for pytorch.org/memory_viz).",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "format", Aliases: []string{"f"}, Value: "pprof", Usage: "`FORMAT`: pprof, folded, chrome or torch"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE` (default: named after the capture); - is stdout"},
			&cli.BoolFlag{Name: "force", Usage: "overwrite FILE"},
			mineFlag(),
			connectFlag(),
		}, readFlags(), momentFlags(), traceFlags()),
		Action: exportSession,
	}
}

func exportSession(c *cli.Context) error {
	format := c.String("format")
	suffix, ok := exportFormats[format]
	if !ok {
		return usageError{fmt.Errorf("unknown format %q (formats: pprof, folded, chrome, torch)", format)}
	}
	at, between, err := momentsOf(c)
	if err != nil {
		return err
	}
	if between != nil && format != "pprof" {
		return usageError{fmt.Errorf("--between needs --format pprof")}
	}
	if !connecting(c) {
		err = checkSource(c)
	}
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(c.Args().First()), ".vram") + suffix
	if !c.Args().Present() {
		name = output.DefaultName(time.Now()) + suffix
	}
	path := c.String("output")
	if path == "" {
		path = name
	}
	binary := format == "pprof" || format == "torch"
	out, err := output.Open(path, c.Bool("force"), binary)
	if err != nil {
		return err
	}
	defer out.Discard()
	var write func(io.Writer) error
	if connecting(c) {
		write, err = exportRemote(c, format)
	} else {
		var r *capture.Reader
		var done func()
		if r, done, err = openSource(c, momentList(&at, between)...); err == nil {
			defer done()
			write, err = exporter(c, r, format, at, between)
		}
	}
	if err != nil {
		return err
	}
	if err := out.Save(write, name); err != nil {
		return err
	}
	sayWrote(c, out)
	return nil
}

// exporter does everything that can fail before anything is written, and returns the function that
// writes.
func exporter(c *cli.Context, r *capture.Reader, format string, at moment, between *[2]moment) (func(io.Writer) error, error) {
	if between != nil {
		from, to, err := interval(r, *between)
		if err != nil {
			return nil, err
		}
		profiles, err := profilesOf(c, r, from, to)
		return func(w io.Writer) error { return profile.WriteDifference(w, profiles[0], profiles[1]) }, err
	}
	end, err := at.in(r)
	if err != nil {
		return nil, err
	}
	st := mine(c, r)
	switch format {
	case "chrome":
		s, t, _, err := replay.Timeline(r, replay.First(r), end)
		return func(w io.Writer) error { return export.Chrome(w, t, s, st) }, err
	case "torch":
		return torchExporter(c, r, end)
	}
	s, err := r.Snapshot(end)
	if err != nil {
		return nil, err
	}
	if format == "folded" {
		return func(w io.Writer) error { return export.Folded(w, s, st, export.FoldedOptions{}) }, nil
	}
	return func(w io.Writer) error { return profile.Write(w, s, st) }, nil
}

func torchExporter(c *cli.Context, r *capture.Reader, at uint64) (func(io.Writer) error, error) {
	var o export.CollectorOptions
	if pids := c.StringSlice("pid"); len(pids) > 0 {
		pid, err := strconv.ParseUint(pids[0], 10, 31)
		if err != nil || len(pids) > 1 {
			return nil, usageError{errors.New("--format torch takes one process id")}
		}
		o.PID = uint32(pid)
	}
	l := r.NewLedger()
	collector := export.NewCollector(l, o)
	to := at
	if at >= r.End() {
		to = math.MaxUint64 // also late readings
	}
	if err := r.Play(to, collector); err != nil {
		return nil, err
	}
	s := r.SnapshotOf(l, at)
	return func(w io.Writer) error { return export.Torch(w, collector, s, mine(c, r)) }, nil
}
