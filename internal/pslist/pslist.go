// SPDX-License-Identifier: Apache-2.0

// Package pslist lists the processes that use CUDA, with their GPU memory and on whose behalf they run.
package pslist

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/nvml"
	"github.com/vramprof/vramprof/tracer/procenv"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/workload"
)

// Read lists the processes of this machine. Without the driver's figures it warns, and goes on.
func Read(ctx context.Context, warn func(error)) ([]reportjson.ListedReport, error) {
	processes, err := libraries.List()
	if err != nil {
		return nil, err
	}
	return withUsage(ctx, processes, warn)
}

// listed is a process on one GPU.
type listed = reportjson.ListedReport

// Write writes a table of the given width. The column WORKLOAD appears only if a workload is
// known. On narrow terminals, each command gets a line of its own.
func Write(out io.Writer, list []listed, columns int) error {
	const figures, least = 30, 16 // columns of PID, GPU and USED; of a command
	if columns < figures+least {
		return writeNarrow(out, list, columns)
	}
	rest, header, behalf := columns-figures, "PID\tGPU\tUSED\tCOMMAND", 0
	for _, l := range list {
		behalf = max(behalf, utf8.RuneCountInString(l.OnBehalf))
	}
	if behalf > 0 {
		behalf = min(max(behalf, len("WORKLOAD")), rest*3/5)
		rest, header = rest-behalf-2, "PID\tGPU\tUSED\tWORKLOAD\tCOMMAND"
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, header)
	for _, l := range list {
		gpu, used, command := "-", "-", shorten(withoutFolder(l.Command), rest)
		if l.GPU != nil {
			gpu, used = fmt.Sprint(*l.GPU), humanize.IBytes(l.Bytes)
		}
		if behalf > 0 {
			command = cmp.Or(shorten(l.OnBehalf, behalf), "-") + "\t" + command
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", l.PID, gpu, used, command)
	}
	return w.Flush()
}

func writeNarrow(out io.Writer, list []listed, columns int) error {
	const indent = 2
	for _, l := range list {
		text := fmt.Sprint(l.PID)
		if l.GPU != nil {
			text += fmt.Sprintf(" GPU %d %s", *l.GPU, humanize.IBytes(l.Bytes))
		}
		text = shorten(text, columns) + "\n"
		for _, more := range []string{l.OnBehalf, withoutFolder(l.Command)} {
			if more != "" {
				text += strings.Repeat(" ", indent) + shorten(more, columns-indent) + "\n"
			}
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	return nil
}

// withUsage adds the figures of NVML, and processes that only NVML lists.
func withUsage(ctx context.Context, processes []libraries.Process, warn func(error)) ([]listed, error) {
	list := []listed{}
	driver, err := nvml.OpenHost(ctx)
	if err != nil {
		warn(err)
	} else {
		defer driver.Close(ctx)
		gpus, err := driver.GPUs(ctx)
		if err != nil {
			return nil, err
		}
		usage, err := driver.Usage(ctx)
		if err != nil {
			return nil, err
		}
		index := map[string]int{}
		for _, g := range gpus {
			index[g.UUID] = g.Index
		}
		for _, u := range usage {
			gpu := index[u.UUID]
			list = append(list, listed{PID: u.PID, GPU: &gpu, UUID: u.UUID, Bytes: u.Bytes})
		}
	}
	for _, p := range processes {
		onGPU := false
		for i := range list {
			if list[i].PID == p.PID {
				list[i].Libraries = p.Libraries
				onGPU = true
			}
		}
		if !onGPU {
			list = append(list, listed{PID: p.PID, Libraries: p.Libraries})
		}
	}
	describe(list)
	return list, nil
}

// describe adds the command line and the workload of each process.
func describe(list []listed) {
	host := workload.NewHost()
	workloads := map[uint32]ledger.Workload{} // a process has a line per GPU
	for i := range list {
		l := &list[i]
		command := procfs.CommandLine(l.PID)
		w, ok := workloads[l.PID]
		if !ok {
			variables, _ := procenv.Read(l.PID) // the container is known without them
			w = host.Read(l.PID, variables, command)
			workloads[l.PID] = w
		}
		l.Command = untrusted.Clean(command)
		l.Workload, l.OnBehalf = reportjson.NewWorkload(w), strings.Join(report.WorkloadText(w), ", ")
	}
}

// withoutFolder removes the folder from the program of a command line.
func withoutFolder(command string) string {
	program, arguments, _ := strings.Cut(command, " ")
	return strings.TrimSpace(path.Base(program) + " " + arguments)
}

func shorten(text string, columns int) string {
	runes := []rune(text)
	if len(runes) <= columns || columns < 2 {
		return text
	}
	return string(runes[:columns-1]) + "…"
}
