// SPDX-License-Identifier: Apache-2.0

// Package check reports whether vramprof can trace on a machine, or what is missing.
package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

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

// resultColumn is the column where details begin.
const resultColumn = 22

// Host reports whether vramprof can trace on this machine, and if all is asked for and it can, what
// each CUDA library has.
func Host(ctx context.Context, out io.Writer, all bool, columns int) error {
	env, err := preflight.ReadHost()
	if err != nil {
		return err
	}
	env.NVML, env.Commands = driverVersion, true
	results := preflight.Check(ctx, env)
	if preflight.ExitCode(results) == 0 {
		results = append(results, programsResult(tracer.LoadPrograms), kernelMemoryResult(), processesResult())
	}
	if err := writeResults(out, results, columns); err != nil {
		return err
	}
	if code := preflight.ExitCode(results); code != 0 {
		return fault.Status(code, errors.New("vramprof cannot trace here"))
	}
	if !all {
		return nil
	}
	list, err := libraryReports()
	if err == nil {
		writeLibraries(out, list, columns, false)
	}
	return err
}

func writeResults(w io.Writer, results []preflight.Result, columns int) error {
	var text bytes.Buffer
	for _, r := range results {
		writeResult(&text, r, columns)
	}
	_, err := w.Write(text.Bytes())
	return err
}

// writeResult writes details beside the name, or below it on narrow terminals.
func writeResult(w io.Writer, r preflight.Result, columns int) {
	column := resultColumn
	head := fmt.Sprintf("%-4s  %-14s  ", r.Status, r.Name)
	if columns < 2*resultColumn {
		column = len("ok    ")
		head = strings.TrimRight(head, " ") + "\n" + strings.Repeat(" ", column)
	}
	fmt.Fprintf(w, "%s%s\n", head, terminal.Hanging(untrusted.Clean(r.Detail), columns, column))
	if r.Remedy != "" && r.Status != preflight.OK {
		fmt.Fprintf(w, "%*s→ %s\n", column, "", terminal.Hanging(r.Remedy, columns, column+2))
	}
}

// driverPatience is how long check waits for a driver that hangs.
const driverPatience = 5 * time.Second

// driverVersion returns NVML's version and the number of GPUs: "NVML 12.4 …, 2 GPUs".
func driverVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, driverPatience)
	defer cancel()
	driver, err := nvml.OpenHost(ctx)
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

// programsResult reports whether all programs load: the kernel verifies them. Kernels of the same
// version differ, because distributions change their verifier.
func programsResult(load func() error) preflight.Result {
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

// kernelMemoryResult reports how much kernel memory tracing takes.
func kernelMemoryResult() preflight.Result {
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

func processesResult() preflight.Result {
	r := preflight.Result{Name: "processes", Status: preflight.OK}
	list, _, err := libraries.List()
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
