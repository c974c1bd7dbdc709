// SPDX-License-Identifier: Apache-2.0

// Package pslist lists the processes that use CUDA, with their GPU memory and workload, and the
// processes that keep a GPU although NVML lists none.
package pslist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/gpuprocs"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/nvml"
	"github.com/vramprof/vramprof/tracer/procenv"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/workload"
)

// Candidate is a process that may use CUDA.
type Candidate struct {
	PID     uint32
	Command string // its program and arguments, at most 60 characters, clean of control characters
}

// Candidates returns the processes whose mappings the caller may read and that map a library named
// like one of CUDA, by pid: fewer than Read knows, without privileges and in less time.
func Candidates() (list []Candidate) {
	pids, _ := procfs.PIDs()
	for _, pid := range pids {
		if libraries.MayMap(pid) {
			list = append(list, Candidate{pid, shorten(WithoutFolder(untrusted.Clean(procfs.CommandLine(pid))), 60)})
		}
	}
	return list
}

// Read lists the processes of this machine, as far as the caller may read them. Without the
// driver's figures it warns, and goes on. It calls confine with the driver, nil without one, before
// it reads anything of a process.
func Read(ctx context.Context, warn func(error), confine func(*nvml.Driver)) (*reportjson.ProcessesReport, error) {
	connection, err := nvml.OpenHost(ctx)
	if err != nil {
		warn(err)
	} else {
		defer connection.Close(ctx)
	}
	confine(connection)
	processes, unread, err := libraries.List()
	if err != nil {
		return nil, err
	}
	for _, text := range unreadNotes(unread, procfs.MayReadAll(), os.Geteuid() == 0) {
		warn(errors.New(text))
	}
	if procfs.Hides() {
		warn(errors.New("/proc hides the processes of other users (hidepid): of those, only what NVML lists is known"))
	}
	found, err := gpuprocs.Scan()
	if err != nil {
		warn(fmt.Errorf("look for open device files: %w", err))
	}
	keepers := indexKeepers(found)
	r := &reportjson.ProcessesReport{Version: reportjson.ProcessesVersion, Unread: unread.Count()}
	d, err := askDriver(ctx, connection)
	if err != nil {
		return nil, err
	}
	r.GPUs = d.gpus
	r.Processes = merge(processes, keepers, d)
	describe(r.Processes, keepers)
	return r, nil
}

// unreadNotes returns why processes could not be read. If privileged, no privilege was missing;
// root may lack some, as in a container.
func unreadNotes(unread libraries.Unread, privileged, root bool) (notes []string) {
	note := func(pids []uint32, why string) {
		if len(pids) > 0 {
			notes = append(notes, format.Count(uint64(len(pids)), "process")+" could not be read: of those, only what NVML lists is known ("+why+")")
		}
	}
	switch {
	case privileged:
		note(unread.Denied, "the kernel denies it even with CAP_SYS_PTRACE, as a security module can; the first is "+firstOf(unread.Denied))
	case root:
		note(unread.Denied, "this root lacks CAP_SYS_PTRACE on the host")
	default:
		note(unread.Denied, "run as root on the host, or with CAP_SYS_PTRACE")
	}
	note(unread.Stalling, "reads of their memory maps take too long; the first is "+firstOf(unread.Stalling))
	return notes
}

func firstOf(list []uint32) string {
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("pid %d", list[0])
}

// Keepers lists the processes that keep a GPU or its memory, and memory without a process, as Read
// and Write do. It loads no BPF program, so a session that has dropped its privileges can call it.
// It asks the driver over connection, or opens one if that is nil.
func Keepers(ctx context.Context, connection *nvml.Driver) ([]reportjson.ListedReport, error) {
	found, err := gpuprocs.Scan()
	if err != nil {
		return nil, err
	}
	keepers := indexKeepers(found)
	if connection == nil {
		if connection, err = nvml.OpenHost(ctx); err == nil {
			defer connection.Close(ctx)
		}
	}
	d, err := askDriver(ctx, connection)
	if err != nil {
		return nil, err
	}
	list := merge(nil, keepers, d)
	describe(list, keepers)
	return append(list, remainders(d.gpus)...), nil
}

// Note returns how a process keeps a GPU, "" if there is nothing to say. It is untrusted.
func Note(l *reportjson.ListedReport) string { return strings.Join(notesOf(l.Presence), "; ") }

// Shares returns the part of Note on dma-bufs and descriptors that other processes have too, "" if
// there are none. It is untrusted.
func Shares(l *reportjson.ListedReport) string {
	if l.Presence == nil {
		return ""
	}
	shared := reportjson.PresenceReport{Passed: l.Presence.Passed}
	for _, b := range l.Presence.Buffers {
		if len(b.Others) > 0 {
			shared.Buffers = append(shared.Buffers, b)
		}
	}
	return strings.Join(sharesOf(&shared), "; ")
}

// SharedBy returns a sentence on each of some processes that has dma-bufs or descriptors in common
// with others now, as Shares does. They are untrusted.
func SharedBy(pids []uint32) (list []string) {
	keepers, err := gpuprocs.Scan()
	if err != nil {
		return nil
	}
	return sharedBy(pids, indexKeepers(keepers))
}

func sharedBy(pids []uint32, keepers *keeperIndex) (list []string) {
	pids = once(slices.Clone(pids))
	rows := merge(nil, keepers, &driver{})
	for i := range rows {
		if _, wanted := slices.BinarySearch(pids, rows[i].PID); !wanted {
			continue
		}
		if text := Shares(&rows[i]); text != "" {
			list = append(list, fmt.Sprintf("process %d %s", rows[i].PID, text))
		}
	}
	return list
}

// Write writes a table of the given width, and below it what else is known of its processes. The
// column WORKLOAD appears only if a workload is known. On narrow terminals, each command gets a
// line of its own.
func Write(out io.Writer, r *reportjson.ProcessesReport, columns int) error {
	const figures, least = 30, 16 // columns of PID, GPU and USED; of a command
	list := append(slices.Clone(r.Processes), remainders(r.GPUs)...)
	if len(list) == 0 {
		return nil
	}
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
		gpu, used, command := "-", "-", shorten(WithoutFolder(l.Command), rest)
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
		for _, more := range []string{l.OnBehalf, WithoutFolder(l.Command)} {
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
func describe(list []listed, keepers *keeperIndex) {
	host := workload.NewHost()
	workloads := map[uint32]ledger.Workload{} // a process has a line per GPU
	for i := range list {
		l := &list[i]
		command := procfs.CommandLine(l.PID)
		if k := keepers.byPID[l.PID]; k != nil && k.Threads > 0 && k.Command != "" {
			command = k.Command // the leader's went with it
		}
		w, ok := workloads[l.PID]
		if !ok {
			variables, _ := procenv.Read(l.PID) // the container is known without them
			w = host.Read(l.PID, variables, command)
			workloads[l.PID] = w
		}
		l.Command = untrusted.Clean(command)
		if l.Presence != nil && l.Presence.Unseen {
			l.Command = unseenCommand
		}
		l.Workload, l.OnBehalf = reportjson.NewWorkload(w), strings.Join(report.WorkloadText(w), ", ")
	}
}

// unseenCommand stands for the command of a process that this pid namespace does not show.
const unseenCommand = "[not in this pid namespace]"

// WithoutFolder removes the folder from the program of a command line.
func WithoutFolder(command string) string {
	program, arguments, _ := strings.Cut(command, " ")
	if program == "" {
		return command
	}
	return strings.TrimSpace(path.Base(program) + " " + arguments)
}

func shorten(text string, columns int) string {
	runes := []rune(text)
	if len(runes) <= columns || columns < 2 {
		return text
	}
	return string(runes[:columns-1]) + "…"
}
