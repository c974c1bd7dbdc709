// SPDX-License-Identifier: Apache-2.0

// Package pslist lists the processes that use CUDA, with their GPU memory and on whose behalf they
// run, and those that keep a GPU although NVML lists nobody.
package pslist

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/gpuprocs"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/nvml"
	"github.com/vramprof/vramprof/tracer/procenv"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/workload"
)

// Read lists the processes of this machine. Without the driver's figures it warns, and goes on.
func Read(ctx context.Context, warn func(error)) (*reportjson.ProcessesReport, error) {
	processes, err := libraries.List()
	if err != nil {
		return nil, err
	}
	keepers, err := gpuprocs.Scan()
	if err != nil {
		warn(fmt.Errorf("look for open device files: %w", err))
	}
	r := &reportjson.ProcessesReport{Version: reportjson.ProcessesVersion}
	d, err := askDriver(ctx, nil, warn)
	if err != nil {
		return nil, err
	}
	r.GPUs = d.gpus
	r.Processes = merge(processes, keepers, d)
	describe(r.Processes, keepers)
	return r, nil
}

// Keepers lists the processes that keep a GPU or its memory, and memory without a process, as Read
// and Write do. It loads no BPF program, so a session that has dropped its privileges can call it.
// It asks the driver over connection, or opens one if that is nil.
func Keepers(ctx context.Context, connection *nvml.Driver) ([]reportjson.ListedReport, error) {
	keepers, err := gpuprocs.Scan()
	if err != nil {
		return nil, err
	}
	d, err := askDriver(ctx, connection, func(error) {})
	if err != nil {
		return nil, err
	}
	list := merge(nil, keepers, d)
	describe(list, keepers)
	return append(list, remainders(d.gpus)...), nil
}

// Note returns how a process keeps a GPU, "" if there is nothing to say. It is untrusted.
func Note(l *reportjson.ListedReport) string { return strings.Join(notesOf(l.Presence), "; ") }

// Write writes a table of the given width, and below it what else is known of its processes. The
// column WORKLOAD appears only if a workload is known. On narrow terminals, each command gets a
// line of its own.
func Write(out io.Writer, r *reportjson.ProcessesReport, columns int) error {
	const figures, least = 30, 16 // columns of PID, GPU and USED; of a command
	list := append(slices.Clone(r.Processes), remainders(r.GPUs)...)
	write := writeTable
	if columns < figures+least {
		write = writeNarrow
	}
	if err := write(out, list, columns); err != nil {
		return err
	}
	return writeNotes(out, r, columns)
}

// pidOf is the cell of a row's pid: rows of memory without a process have none.
func pidOf(l *listed) string {
	if l.PID == 0 {
		return "-"
	}
	return fmt.Sprint(l.PID)
}

func writeTable(out io.Writer, list []listed, columns int) error {
	const figures = 30
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
	for i := range list {
		l := &list[i]
		gpu, used, command := "-", "-", shorten(withoutFolder(l.Command), rest)
		if l.GPU != nil {
			gpu, used = fmt.Sprint(*l.GPU), humanize.IBytes(l.Bytes)
		}
		if behalf > 0 {
			command = cmp.Or(shorten(l.OnBehalf, behalf), "-") + "\t" + command
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", pidOf(l), gpu, used, command)
	}
	return w.Flush()
}

func writeNarrow(out io.Writer, list []listed, columns int) error {
	const indent = 2
	for i := range list {
		l := &list[i]
		text := pidOf(l)
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

// describe adds the command line and the workload of each process.
func describe(list []listed, keepers []gpuprocs.Process) {
	host := workload.NewHost()
	workloads := map[uint32]ledger.Workload{} // a process has a line per GPU
	for i := range list {
		l := &list[i]
		command := procfs.CommandLine(l.PID)
		if k := keeperOf(keepers, l.PID); k != nil && k.Threads > 0 && k.Command != "" {
			command = k.Command // the leader's went with it
		}
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
