// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// FilterText names what a filter chooses: "process 42 of pod train".
func FilterText(f archive.Filter) string {
	var list []string
	for _, x := range [...]struct{ noun, name string }{{"process", f.Process}, {"pod", f.Pod}, {"job", f.Job}} {
		if x.name != "" {
			list = append(list, x.noun+" "+x.name)
		}
	}
	return strings.Join(list, " of ")
}

// Only returns the processes of a snapshot that pass a filter, which may be empty.
func Only(s *ledger.Snapshot, only archive.Filter) (*ledger.Snapshot, error) {
	if only == (archive.Filter{}) {
		return s, nil
	}
	return Chosen(s, only)
}

// Chosen returns the processes of a snapshot that pass a filter.
func Chosen(s *ledger.Snapshot, only archive.Filter) (*ledger.Snapshot, error) {
	s = s.Only(func(p *ledger.Process) bool { return Passes(only, p) })
	if len(s.Processes) == 0 {
		return nil, fault.New(fault.NoProcess, fmt.Errorf("no process is %s", FilterText(only)))
	}
	return s, nil
}

// Passes reports whether a process passes a filter.
func Passes(f archive.Filter, p *ledger.Process) bool {
	return archive.MatchesProcess(f.Process, p.PID, p.Comm) && archive.MatchesPod(f.Pod, p.Namespace, p.Pod) && archive.MatchesJob(f.Job, p.Job)
}
