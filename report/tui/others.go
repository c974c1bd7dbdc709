// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"slices"
	"strconv"

	"github.com/vramprof/vramprof/report/format"
)

// Other is memory of a GPU, or a process that keeps one, as NVML and the kernel show it. Its texts are untrusted.
type Other struct {
	PID     uint32 // 0: no process, as of what the driver keeps
	GPU     int    // NVML index; -1: on none that NVML lists it for
	Bytes   uint64 // as NVML reports; 0: it lists none
	Command string
	Note    string // how it keeps the GPU; "": nothing to say
}

// mostOthers is how many of them are shown below the processes of a screen.
const mostOthers = 6

// othersOf returns rows on what is not traced, below a blank line and a heading, in at most height lines: memory without a
// process first, then the largest. Processes that are traced are left out.
func othersOf(x *scene, height int, notes bool) []string {
	if x.b == nil || height < 3 {
		return nil
	}
	var list []Other
	for _, o := range x.b.Others {
		traced := o.PID != 0 && slices.ContainsFunc(x.b.processes, func(p process) bool { return p.ended == 0 && p.pid == strconv.FormatUint(uint64(o.PID), 10) })
		if !traced && (x.gpu == nil || o.GPU < 0 || x.b.labelOf(*x.gpu) == strconv.Itoa(o.GPU)) {
			list = append(list, o)
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b Other) int {
		if a.PID == 0 || b.PID == 0 {
			return btoi(a.PID != 0) - btoi(b.PID != 0)
		}
		return int(int64(min(b.Bytes, 1<<62)) - int64(min(a.Bytes, 1<<62))) // 64 bits wide
	})
	width := x.size.width
	lines := []string{"", x.p.paint(bold, format.Cut("Not traced, by NVML and the kernel", width))}
	for i := range list {
		if room := height - len(lines); room <= 1 && i < len(list)-1 {
			return append(lines, format.Cut("  "+format.Count(uint64(len(list)-i), "more row"), width))
		}
		o := &list[i]
		gpu, pid, used := "", "", ""
		if o.GPU >= 0 {
			gpu, used = strconv.Itoa(o.GPU), format.Bytes(o.Bytes)
		}
		if o.PID != 0 {
			pid = strconv.FormatUint(uint64(o.PID), 10)
		}
		text := format.Pad(gpu, 3) + format.Pad(pid, -8) + format.Pad(used, -11) + " " + tidy(o.Command)
		lines = append(lines, format.Cut(text, width))
		if notes && o.Note != "" {
			lines = append(lines, wrap("    ", tidy(o.Note), width)...)
		}
	}
	return lines
}

// labelOf returns the label of a GPU, "" if it is not known.
func (b *books) labelOf(key gpuKey) string {
	if n := slices.IndexFunc(b.gpus, func(g gpu) bool { return g.key == key }); n >= 0 {
		return b.gpus[n].label
	}
	return ""
}
