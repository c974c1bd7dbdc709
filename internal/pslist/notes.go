// SPDX-License-Identifier: Apache-2.0

package pslist

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report/format"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// writeNotes writes below the table what is known of processes besides NVML's figures, and with
// hints what a person can do.
func writeNotes(out io.Writer, r *reportjson.ProcessesReport, columns int) error {
	var lines []string
	seen := map[uint32]bool{} // a process has a row for each GPU
	for i := range r.Processes {
		l := &r.Processes[i]
		if seen[l.PID] {
			continue
		}
		seen[l.PID] = true
		if list := notesOf(l.Presence); len(list) > 0 {
			lines = append(lines, fmt.Sprintf("%d: %s", l.PID, strings.Join(list, "; ")))
		}
		if l.Reap == nil {
			continue
		}
		if l.Reap.Command != "" {
			lines = append(lines, fmt.Sprintf("%d could be ended: %s (%s)", l.PID, l.Reap.Command, l.Reap.Loses))
		} else {
			lines = append(lines, fmt.Sprintf("%d: %s", l.PID, l.Reap.Loses))
		}
	}
	for i := range r.GPUs {
		if h := r.GPUs[i].Reap; h != "" {
			lines = append(lines, fmt.Sprintf("GPU %d: %s", r.GPUs[i].GPU, h))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, terminal.HangingFrom(0, line, columns, 2)); err != nil {
			return err
		}
	}
	return nil
}

var workerNames = map[string]string{
	"data_loader":      "worker of a PyTorch DataLoader (by its name)",
	"spawned":          "worker that Python's multiprocessing spawned (by its arguments)",
	"fork_server":      "fork server of Python's multiprocessing, or its worker (by its arguments)",
	"resource_tracker": "resource tracker of Python's multiprocessing (by its arguments)",
}

var clueNames = map[string]string{"environment": "its environment names", "process_group": "its process group is that of", "session": "its session is that of"}

var mpsNames = map[string]string{"server": "server of MPS, which owns the contexts of its clients", "control": "control daemon of MPS", "client": "client of MPS"}

// notesOf returns what is said of a process.
func notesOf(p *reportjson.PresenceReport) (list []string) {
	if p == nil {
		return nil
	}
	add := func(f string, values ...any) { list = append(list, fmt.Sprintf(f, values...)) }
	if p.Unseen {
		add("NVML lists this pid, and this pid namespace has no such process")
	}
	if p.NamedPID != 0 {
		add("NVML lists it as %d, its pid in its own pid namespace", p.NamedPID)
	}
	if p.Unnamed && len(p.Devices) > 0 {
		add("has %s open, and NVML does not list it", strings.Join(p.Devices, ", "))
	}
	if p.Defunct > 0 {
		add("defunct: its first thread has exited, and %s", livingThreads(p.Defunct))
	}
	if p.Sleeping {
		add("in a call of the kernel that no signal ends")
	}
	if name := mpsNames[p.MPS]; name != "" {
		add("%s", name)
	}
	if o := p.Orphan; o != nil {
		add("%s", orphanText(o))
	}
	list = append(list, sharesOf(p)...)
	if p.Imports != nil {
		add("%s", importsText(p.Imports))
	}
	return list
}

// sharesOf returns what is said of memory that others have too, as the kernel shows it.
func sharesOf(p *reportjson.PresenceReport) (list []string) {
	if len(p.Buffers) > 0 {
		list = append(list, buffersText(p.Buffers))
	}
	if len(p.Passed) > 0 {
		list = append(list, passedText(p.Passed))
	}
	return list
}

func livingThreads(n int) string {
	if n == 1 {
		return "1 other lives"
	}
	return fmt.Sprintf("%d others live", n)
}

// orphanText returns "orphan: its parent has ended; worker of …; its process group is that of train
// [42], which lives".
func orphanText(o *reportjson.OrphanReport) string {
	text := "orphan, its parent has ended"
	if name := workerNames[o.Worker]; name != "" {
		text = "orphaned " + name + ", its parent has ended"
	}
	clue := clueNames[o.KnownBy]
	if clue == "" {
		return text + ", and nothing names it"
	}
	who, what := strconv.FormatUint(uint64(o.Former), 10), "has ended too"
	if o.Lives {
		who, what = fmt.Sprintf("%s [%d]", o.Name, o.Former), "lives"
	} else if o.KnownBy != "environment" {
		what = "has ended: perhaps that parent"
	}
	return fmt.Sprintf("%s: %s %s, which %s", text, clue, who, what)
}

// mostPIDs is how many pids are listed that share a dma-buf.
const mostPIDs = 8

// buffersText returns "has 2 dma-bufs (4.00 MiB of nvidia), shared with 42, 43".
func buffersText(list []reportjson.BufferReport) string {
	bytes, exporter := uint64(0), list[0].Exporter
	for _, b := range list {
		bytes += b.Bytes
		if b.Exporter != exporter {
			exporter = ""
		}
	}
	others := pidsText(othersOf(list))
	text := "has " + format.Count(uint64(len(list)), "dma-buf") + " (" + format.Bytes(bytes)
	if exporter != "" {
		text += " of " + exporter
	}
	text += "), "
	if others == "" {
		return text + "which no other process has"
	}
	return text + "shared with " + others
}

// pidsText returns "42, 43 and 2 more".
func pidsText(pids []uint32) string {
	var list []string
	for _, pid := range pids[:min(len(pids), mostPIDs)] {
		list = append(list, fmt.Sprint(pid))
	}
	text := strings.Join(list, ", ")
	if more := len(pids) - len(list); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// passedText returns "has 2 descriptors of nvidiactl in common with 42, as CUDA exports memory".
func passedText(list []reportjson.PassedReport) string {
	return "has " + format.Count(uint64(len(list)), "descriptor") + " of nvidiactl in common with " + pidsText(passedOthers(list)) + ", as CUDA exports memory"
}
