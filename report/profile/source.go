// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"path"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const maxRoots = 8 // processes whose files sourceText has pprof look at

// sourceText returns the flags that have pprof -list and the web page find the source of processes
// with file systems of their own, "" if there are none. Such processes must run for that: their
// paths, /workspace/train.py, are below /proc/PID/root.
func sourceText(s *ledger.Snapshot, p *profile.Profile) string {
	named := map[int64]bool{} // pids with source files
	for _, x := range p.Sample {
		if pid := number(x, "pid"); pid != 0 && !named[pid] {
			named[pid] = hasSource(x)
		}
	}
	var names, roots []string
	more := 0
	for i := range s.Processes {
		switch q := &s.Processes[i]; {
		case !q.OwnRoot || q.End != 0 || !named[int64(q.PID)]:
		case len(roots) == maxRoots:
			more++
		default:
			names = append(names, format.Process(q))
			roots = append(roots, fmt.Sprintf("/proc/%d/root", q.PID))
		}
	}
	if len(roots) == 0 {
		return ""
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("source of %s, with its own file system: -source_path=%s -trim_path=/", text, strings.Join(roots, ":"))
}

func hasSource(x *profile.Sample) bool {
	for _, l := range x.Location {
		for _, line := range l.Line {
			if line.Function != nil && path.IsAbs(line.Function.Filename) {
				return true
			}
		}
	}
	return false
}
