// SPDX-License-Identifier: Apache-2.0

// Package ranks joins what several processes of one job have in common, such as a line that leaks
// in each rank of a training or in each worker of a server.
package ranks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// program is what the processes of a job have in common. Those that ended are apart from those that
// run: their memory is gone.
type program struct {
	exe   string
	user  uint32
	ended bool
	ledger.Workload
}

func programOf(p *ledger.Process) program {
	k := program{exe: cmp.Or(p.Exe, p.Comm), user: p.User, ended: p.End != 0, Workload: p.Workload}
	k.Rank, k.LocalRank = "", ""
	if k.Job != "" { // its ranks may have a pod each
		k.Container, k.Pod, k.PodContainer = "", "", ""
	}
	return k
}

// rankOf returns the rank of a process, "" if it has none.
func rankOf(p *ledger.Process) string { return format.Digits(cmp.Or(p.Rank, p.LocalRank)) }

// Jobs are the processes of a snapshot that allocated, by job: those of one program, user and
// workload. A rank is in a job once: two processes of rank 3 are of two jobs, each with the first
// ranks by pid that no earlier job has.
type Jobs struct {
	s       *ledger.Snapshot
	of      []int   // by process: its job
	members [][]int // by job, indices into Snapshot.Processes
}

// New finds the jobs of a snapshot.
func New(s *ledger.Snapshot) *Jobs {
	j := &Jobs{s: s, of: make([]int, len(s.Processes))}
	uses := make([]bool, len(s.Processes))
	for i := range s.Sites {
		uses[s.Sites[i].Process] = true
	}
	type rank struct {
		program
		rank string
	}
	type job struct {
		program
		turn int
	}
	seen, at := map[rank]int{}, map[job]int{}
	for i := range s.Processes {
		k := job{program: programOf(&s.Processes[i])}
		if name := rankOf(&s.Processes[i]); name != "" {
			r := rank{k.program, name}
			k.turn = seen[r]
			seen[r]++
		}
		n, known := at[k]
		if !known {
			n = len(j.members)
			at[k] = n
			j.members = append(j.members, nil)
		}
		if j.of[i] = n; uses[i] {
			j.members[n] = append(j.members[n], i)
		}
	}
	return j
}

// Of returns the job of a process, by which jobs are told apart.
func (j *Jobs) Of(process int) int { return j.of[process] }

// Size returns how many processes the job of a process has.
func (j *Jobs) Size(process int) int { return len(j.members[j.of[process]]) }

// Among returns the processes of the job that some processes are of: these alone where ranks are
// unknown, since others of the same program may be of another job.
func (j *Jobs) Among(processes []int) []int {
	if all := j.members[j.of[processes[0]]]; j.Ranks(all) != "" {
		return all
	}
	return processes
}

// mostNamed is how many processes of a job are named one by one.
const mostNamed = 3

// Text returns where some processes of one job are in it: "in each of 8 processes (ranks 0 to 7)",
// "in 7 of 8 processes (not in rank 5)", "in 2 of 8 processes (ranks 1, 3)", "only in rank 3 of 8
// processes"; "" where that is nothing but one process.
func (j *Jobs) Text(processes []int) string {
	all := j.Among(processes)
	if len(all) < 2 {
		return ""
	}
	count := format.Count(uint64(len(all)), "process")
	if j.s.Processes[processes[0]].End != 0 {
		count = fmt.Sprintf("%d ended processes", len(all))
	}
	if len(processes) == 1 {
		return "only in " + j.Names(processes) + " of " + count
	}
	if len(processes) == len(all) {
		return format.Join("in each of "+count, inBrackets(j.Ranks(processes)))
	}
	others := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return slices.Contains(processes, i) })
	text := fmt.Sprintf("in %d of %s", len(processes), count)
	if len(others) <= mostNamed && len(others) < len(processes) {
		return text + " (not in " + j.Names(others) + ")"
	}
	return text + " (" + j.Names(processes) + ")"
}

func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return "(" + text + ")"
}

// Names returns "ranks 0 to 3, 5", or "python3 [42], python3 [43], python3 [44] and 5 more" where
// ranks are unknown.
func (j *Jobs) Names(processes []int) string {
	if text := j.Ranks(processes); text != "" {
		return text
	}
	var list []string
	for _, i := range processes[:min(len(processes), mostNamed)] {
		list = append(list, format.Process(&j.s.Processes[i]))
	}
	text := strings.Join(list, ", ")
	if more := len(processes) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Ranks returns "ranks 0 to 3, 5", "rank 3", or "" if a rank is unknown.
func (j *Jobs) Ranks(processes []int) string {
	noun, list := "rank", make([]uint64, 0, len(processes))
	for _, i := range processes {
		p := &j.s.Processes[i]
		n, err := strconv.ParseUint(rankOf(p), 10, 32)
		if err != nil {
			return ""
		}
		if p.Rank == "" {
			noun = "local rank"
		}
		list = append(list, n)
	}
	slices.Sort(list)
	if list = slices.Compact(list); len(list) > 1 {
		noun += "s"
	}
	return noun + " " + runs(list)
}

// runs returns "0 to 3, 5, 7" of sorted numbers.
func runs(list []uint64) string {
	var parts []string
	for i := 0; i < len(list); {
		k := i
		for k+1 < len(list) && list[k+1] == list[k]+1 {
			k++
		}
		switch {
		case k > i+1:
			parts = append(parts, fmt.Sprintf("%d to %d", list[i], list[k]))
			i = k
		default:
			parts = append(parts, strconv.FormatUint(list[i], 10))
		}
		i++
	}
	const most = 8
	if more := len(parts) - most; more > 0 {
		return strings.Join(parts[:most], ", ") + ", …"
	}
	return strings.Join(parts, ", ")
}

// oddShare is by how much of the median a process exceeds it to be named.
const oddShare = 0.25

// Most returns the index of the value that is the largest by far, -1 if none is.
func Most[T uint64 | float64](values []T) int {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n < 2 || float64(sorted[n-1]) <= float64(sorted[(n-1)/2])*(1+oddShare) || sorted[n-1] == sorted[n-2] {
		return -1
	}
	return slices.Index(values, sorted[n-1])
}
