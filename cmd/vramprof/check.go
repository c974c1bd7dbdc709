// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/kernelmemory"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/nvml"
	"github.com/vramprof/vramprof/tracer/preflight"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:        "check",
		Usage:       "report whether vramprof can trace here, or what is missing",
		UsageText:   "vramprof check [-v | -p PID | --libraries [--json]]",
		Description: "Exits with status 4 if something is missing.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"},
				Usage: "list which functions can be traced in each CUDA library of this machine"},
			&cli.UintFlag{Name: "pid", Aliases: []string{"p"},
				Usage: "only report what tracing process `PID` would meet: functions that it overwrote in its memory, and what an earlier tracer left"},
			&cli.BoolFlag{Name: "libraries",
				Usage: "only list the CUDA libraries: where the probe of each function goes, its first bytes, and what the driver's cuGetProcAddress returns"},
			&cli.BoolFlag{Name: "json", Usage: "with --libraries: write JSON"},
		},
		Action: check,
	}
}

// checkColumn is the column where details begin.
const checkColumn = 22

func check(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	switch {
	case c.IsSet("pid") && (c.Bool("libraries") || c.Bool("json") || c.Bool("verbose")):
		return fault.Usage(errors.New("--pid stands alone (vramprof check -p PID)"))
	case c.IsSet("pid"):
		return checkPID(c.App.Writer, uint32(c.Uint("pid")), terminal.Width())
	case c.Bool("libraries"):
		return checkAllLibraries(c.Context, c.App.Writer, c.Bool("json"), terminal.Width())
	case c.Bool("json"):
		return fault.Usage(errors.New("--json needs --libraries (vramprof check --libraries --json)"))
	}
	env, err := preflight.ReadHost()
	if err != nil {
		return err
	}
	env.NVML, env.Commands = driverVersion, true
	results := preflight.Check(c.Context, env)
	if preflight.ExitCode(results) == 0 {
		results = append(results, checkPrograms(tracer.LoadPrograms), checkKernelMemory(), checkLibraries())
	}
	for _, r := range results {
		writeResult(c.App.Writer, r, terminal.Width())
	}
	if code := preflight.ExitCode(results); code != 0 {
		return fault.Status(code, errors.New("vramprof cannot trace here"))
	}
	if !c.Bool("verbose") {
		return nil
	}
	list, err := libraryReports()
	if err == nil {
		writeLibraries(c.App.Writer, list, terminal.Width(), false)
	}
	return err
}

// writeResult writes details beside the name, or below it on narrow terminals.
func writeResult(w io.Writer, r preflight.Result, columns int) {
	column := checkColumn
	head := fmt.Sprintf("%-4s  %-14s  ", r.Status, r.Name)
	if columns < 2*checkColumn {
		column = len("ok    ")
		head = strings.TrimRight(head, " ") + "\n" + strings.Repeat(" ", column)
	}
	fmt.Fprintf(w, "%s%s\n", head, terminal.Hanging(untrusted.Clean(r.Detail), columns, column))
	if r.Remedy != "" && r.Status != preflight.OK {
		fmt.Fprintf(w, "%*s→ %s\n", column, "", terminal.Hanging(r.Remedy, columns, column+2))
	}
}

// driverVersion returns NVML's version and the number of GPUs: "NVML 12.4 …, 2 GPUs".
func driverVersion(ctx context.Context) (string, error) {
	driver, err := openNVML(ctx)
	if err != nil {
		return "", err
	}
	defer driver.Close(ctx)
	gpus, err := driver.GPUs(ctx)
	if err != nil {
		return "", err
	}
	if len(gpus) == 0 {
		return "", &nvml.InitError{
			Err:    fmt.Errorf("the driver %s lists no GPU", driver.Version()),
			Advice: "lspci -d 10de: lists the machine's GPUs, dmesg | grep NVRM shows why the driver does not use one; in a container, pass the GPUs to it",
		}
	}
	return driver.Version() + ", " + format.Count(uint64(len(gpus)), "GPU"), nil
}

// checkPrograms reports whether all programs load: the kernel verifies them. Kernels of the same version differ,
// because distributions change their verifier.
func checkPrograms(load func() error) preflight.Result {
	begin := time.Now()
	if err := load(); err != nil {
		return preflight.Result{
			Name: "programs", Status: preflight.Fail, Detail: "the programs do not load: " + firstLine(err.Error()),
			Remedy: "use a kernel that vramprof help kernels lists as tested, and report this with uname -r", Code: preflight.ExitMissing,
		}
	}
	return preflight.Result{Name: "programs", Status: preflight.OK, Detail: "the kernel accepts all, in " + time.Since(begin).Round(100*time.Millisecond).String()}
}

// firstLine omits the verifier's log, which can have thousands of lines.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// checkKernelMemory reports how much kernel memory tracing takes.
func checkKernelMemory() preflight.Result {
	r := preflight.Result{Name: "kernel memory", Status: preflight.OK}
	possible, online, err := kernelmemory.CPUs()
	var need kernelmemory.Need
	if err == nil {
		need, err = kernelmemory.Compute(possible, online)
	}
	if err != nil {
		r.Status, r.Detail = preflight.Warn, err.Error()
		return r
	}
	r.Detail = fmt.Sprintf("tracing takes at least %d MiB, %d MiB with PyTorch; unwind tables add at most %d MiB; every table full: %d MiB (%d possible CPUs, %d online)",
		need.Least>>20, (need.Least+need.Torch)>>20, need.Tables>>20, need.Most>>20, possible, online)
	return r
}

func checkLibraries() preflight.Result {
	r := preflight.Result{Name: "processes", Status: preflight.OK}
	list, err := libraries.List()
	if err != nil {
		r.Status, r.Detail, r.Remedy = preflight.Warn, err.Error(), "run as root on the host"
		return r
	}
	libraries := map[string]bool{}
	for _, p := range list {
		for _, l := range p.Libraries {
			libraries[l] = true
		}
	}
	r.Detail = fmt.Sprintf("%d use CUDA now", len(list))
	if len(list) == 1 {
		r.Detail = "1 uses CUDA now"
	}
	if len(libraries) > 0 {
		r.Detail += ", through " + strings.Join(slices.Sorted(maps.Keys(libraries)), ", ")
	}
	return r
}
