// SPDX-License-Identifier: Apache-2.0

// Package imported says whose memory running processes have imported. Where the owner has ended,
// the importer keeps memory that NVML counts for nobody.
package imported

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Memory is what a process has imported from others.
type Memory struct {
	Process int     // index into Snapshot.Processes
	Bytes   uint64  // without those of unknown size
	Count   uint64  // imported allocations
	Owners  []Owner // the traced ones, by pid
	More    bool    // or there are others, which are unknown
}

// Owner is a process that allocated memory which another one imported.
type Owner struct {
	PID   uint32
	Name  string // clean
	Ended bool
}

// Of returns what each running process has imported, by process.
func Of(s *ledger.Snapshot) (list []Memory) {
	at := map[int]int{}
	for i := range s.Sites {
		x := &s.Sites[i]
		if x.Kind != ledger.Imported || x.LiveObjects == 0 || s.Processes[x.Process].End != 0 {
			continue
		}
		n, known := at[x.Process]
		if !known {
			n = len(list)
			at[x.Process], list = n, append(list, Memory{Process: x.Process})
		}
		list[n].add(s, x)
	}
	for i := range list {
		slices.SortFunc(list[i].Owners, func(a, b Owner) int {
			return cmp.Or(cmp.Compare(a.PID, b.PID), strings.Compare(a.Name, b.Name))
		})
	}
	slices.SortFunc(list, func(a, b Memory) int { return cmp.Compare(a.Process, b.Process) })
	return list
}

func (m *Memory) add(s *ledger.Snapshot, x *ledger.Site) {
	m.Bytes += x.LiveBytes
	m.Count += x.LiveObjects
	m.More = m.More || x.MoreOwners || len(x.Owners) == 0
	for _, o := range x.Owners {
		if o.Process < 0 || o.Process >= len(s.Processes) || o.Process == x.Process {
			continue
		}
		p := &s.Processes[o.Process]
		if owner := (Owner{p.PID, untrusted.Clean(p.Comm), p.End != 0}); !slices.Contains(m.Owners, owner) {
			m.Owners = append(m.Owners, owner)
		}
	}
}

// FromEnded reports whether an owner has ended.
func (m *Memory) FromEnded() bool {
	return slices.ContainsFunc(m.Owners, func(o Owner) bool { return o.Ended })
}

// mostOwners is how many owners a text names.
const mostOwners = 8

// Text returns "has imported 2.00 GiB of train [42], which has ended; and of processes that are not
// traced".
func (m *Memory) Text() string {
	text := "has imported " + format.Bytes(m.Bytes)
	if m.Bytes == 0 {
		text = "has imported " + format.Count(m.Count, "allocation") + " of unknown size"
	}
	var owners []string
	for _, o := range m.Owners[:min(len(m.Owners), mostOwners)] {
		owner := fmt.Sprintf("%s [%d]", o.Name, o.PID)
		if o.Ended {
			owner += ", which has ended"
		}
		owners = append(owners, owner)
	}
	if m.More || len(m.Owners) > len(owners) || len(owners) == 0 {
		owners = append(owners, "processes that are not traced")
	}
	return text + " of " + strings.Join(owners, "; and of ")
}

// Remarks returns a sentence on each process that has imported memory of one that has ended.
func Remarks(s *ledger.Snapshot) (list []string) {
	for _, m := range Of(s) {
		if m.FromEnded() {
			list = append(list, format.Process(&s.Processes[m.Process])+" "+m.Text()+": the GPU may keep the memory of an ended process until no importer has it")
		}
	}
	return list
}
