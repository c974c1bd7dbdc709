// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/gate"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/tracer/unwindcache"
)

const ciName = "ci"

func ciCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      ciName,
		Usage:     "run a command, and fail if its GPU memory grew",
		UsageText: "vramprof ci [OPTIONS] -- COMMAND [ARGUMENTS]",
		Description: "Runs the command under record, and compares the GPU memory at its peak with a budget, or with a baseline: a file of --save-baseline, or a capture. " +
			"Lines are matched by function and text, so that a line that moved is the same. " +
			"Exits with 0 if it is good, 1 if it is bad, and 125 if it cannot tell, as git bisect run needs it. The output of the command goes to stderr.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "budget", Usage: "no GPU may have more than `BYTES` in use: 22GiB"},
			&cli.StringFlag{Name: "baseline", Usage: "compare with `FILE`"},
			&cli.StringFlag{Name: "tolerance", Value: "1%", Usage: "the peak may be `MORE` than the baseline's: a percentage of it, or bytes (64MiB); 0: not a byte"},
			&cli.BoolFlag{Name: "each-line", Usage: "also fail if one line grew by more than that, although the peak did not"},
			&cli.IntFlag{Name: "repeat", Value: 1, Usage: "run the command `N` times and compare medians; growth within the spread of the runs is none (default: 1)"},
			&cli.StringFlag{Name: "save-baseline", Usage: "write what was measured to `FILE`"},
			&cli.StringFlag{Name: "junit", Usage: "write the result as JUnit XML to `FILE`; - is stdout"},
			&cli.StringFlag{Name: "sarif", Usage: "write the result as SARIF to `FILE`; - is stdout"},
			&cli.BoolFlag{Name: "force", Usage: "overwrite these files"},
			&cli.StringFlag{Name: "tensors", Value: "auto", Usage: "trace PyTorch tensors: `WHEN` is auto, on or off"},
			&cli.StringFlag{Name: "sample", Value: "0", Usage: "take the stack of one tensor in `BYTES` on average; 0: of every tensor, which makes lines exact"},
			&cli.StringFlag{Name: "duration", Aliases: []string{"d"}, Usage: "stop after `TIME`: 30s, 10m, or plain seconds"},
			&cli.StringFlag{Name: "max-memory", Value: "auto", Usage: "stop tracing before vramprof exceeds `BYTES`; auto: a quarter of the memory, 512MiB to 4GiB"},
			mineFlag(),
			&cli.StringFlag{Name: "cache", Value: unwindcache.Default, Usage: "keep unwind tables of libraries in `DIR` for later sessions, which then start faster"},
			&cli.BoolFlag{Name: "no-cache", Usage: "keep no unwind tables, and use none that are kept"},
		},
		Action: p.ci,
	}
}

// ciPassed are the flags that record gets.
var ciPassed = []string{"tensors", "sample", "duration", "max-memory", "cache"}

func (p *program) ci(c *cli.Context) error {
	o, err := p.gateOptions(c)
	if err != nil {
		return err
	}
	files, err := gateFiles(c)
	if err != nil {
		return err
	}
	defer func() {
		for i := range files {
			files[i].Discard()
		}
	}()
	r, err := gate.Run(c.Context, o)
	if err != nil {
		return err
	}
	summary := c.App.Writer
	for i := range files {
		if f := &files[i]; f.IsStdout() {
			summary = c.App.ErrWriter
		}
	}
	errs := []error{r.WriteText(summary, terminal.Width())}
	for i := range files {
		f := &files[i]
		if f.baseline && (r.Now == nil || len(r.Why) > 0) {
			errs = append(errs, fmt.Errorf("no baseline is saved: the run was not measured to its end"))
			continue
		}
		err := f.Save(func(w io.Writer) error { return f.write(r, w) }, f.name)
		if err == nil {
			sayWrote(c, f)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	switch r.Verdict {
	case gate.Bad:
		return fault.Status(exitError, errors.New(""))
	case gate.Unknown:
		return fault.Status(exitUnknown, errors.New(""))
	}
	return nil
}

func (p *program) gateOptions(c *cli.Context) (o gate.Options, err error) {
	if o.Command, err = p.commandOf(c); err != nil {
		return o, err
	}
	switch {
	case len(o.Command) == 0:
		return o, fault.Usage(errors.New("ci needs a command to run (vramprof ci --budget 22GiB -- COMMAND)"))
	case c.Int("repeat") < 1:
		return o, fault.Usage(errors.New("--repeat must be at least 1"))
	case !c.IsSet("budget") && !c.IsSet("baseline") && !c.IsSet("save-baseline"):
		return o, fault.Usage(errors.New("ci needs --budget, --baseline or --save-baseline"))
	}
	o.Repeat, o.Baseline, o.EachLine = c.Int("repeat"), c.String("baseline"), c.Bool("each-line")
	o.Tool, o.Stderr = "vramprof "+version, c.App.ErrWriter
	if text := c.String("budget"); c.IsSet("budget") {
		if o.Budget, err = humanize.ParseBytes(text); err != nil || o.Budget < leastGPU {
			return o, fault.Usage(fmt.Errorf("--budget: %q is not a number of bytes from 1 MiB on (22GiB)", text))
		}
	}
	if o.Tolerance, err = toleranceOf(c.String("tolerance")); err != nil {
		return o, err
	}
	if o.Measure.Folder, err = os.Getwd(); err != nil {
		return o, err
	}
	o.Measure.Mine = mineOf(c)
	for _, name := range ciPassed {
		if c.String(name) != "" && (name != "cache" || c.IsSet(name)) {
			o.Record = append(o.Record, "--"+name+"="+c.String(name))
		}
	}
	if c.Bool("no-cache") {
		o.Record = append(o.Record, "--no-cache")
	}
	return o, nil
}

func toleranceOf(text string) (t gate.Tolerance, err error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(number, 64)
		if err == nil && percent >= 0 && percent <= 1000 {
			return gate.Tolerance{Share: percent / 100}, nil
		}
	} else if t.Bytes, err = humanize.ParseBytes(text); err == nil && (t.Bytes == 0 || t.Bytes >= 1<<10) { // 5 means 5%
		return t, nil
	}
	return t, fault.Usage(fmt.Errorf("--tolerance: %q is neither 0, a percentage (1%%) nor a number of bytes from 1 KiB on (64MiB)", text))
}

// gateFile is a file that a result is written into.
type gateFile struct {
	output.Destination
	name     string
	baseline bool
	write    func(*gate.Result, io.Writer) error
}

// gateFiles opens the files before the command runs.
func gateFiles(c *cli.Context) (list []gateFile, err error) {
	for _, f := range []struct {
		flag  string
		write func(*gate.Result, io.Writer) error
	}{{"save-baseline", (*gate.Result).Save}, {"junit", (*gate.Result).WriteJUnit}, {"sarif", (*gate.Result).WriteSARIF}} {
		if !c.IsSet(f.flag) {
			continue
		}
		d, err := output.Open(c.String(f.flag), c.Bool("force"), false)
		if err != nil {
			for i := range list {
				list[i].Discard()
			}
			return nil, err
		}
		list = append(list, gateFile{d, "vramprof-" + f.flag, f.flag == "save-baseline", f.write})
	}
	return list, nil
}
