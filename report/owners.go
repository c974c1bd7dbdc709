// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// OwnerReport is who allocated imported memory.
type OwnerReport struct {
	Process  int           `json:"process"` // index into processes
	PID      uint32        `json:"pid"`
	Comm     string        `json:"comm,omitempty"`
	API      string        `json:"api"`
	Headline int           `json:"headline"`
	Stack    []FrameReport `json:"stack"`
}

func ownerReports(s *ledger.Snapshot, st callstack.Stacks, o Options, x *ledger.Site) (list []OwnerReport) {
	for i := range x.Owners {
		w := &x.Owners[i]
		p := &s.Processes[w.Process]
		stack := frames.Visible(st, w.Stack, w.API)
		list = append(list, OwnerReport{
			Process: w.Process, PID: p.PID, Comm: untrusted.Clean(p.Comm), API: untrusted.Clean(w.API),
			Headline: frames.Headline(stack), Stack: stackReport(stack),
		})
	}
	return list
}

const lineColumns = 60 // of a line of code inside a sentence

// lineText is the line of the user's own code in a stack.
func lineText(st callstack.Stacks, stack uint64, api string) string {
	list := frames.Visible(st, stack, api)
	f := &list[frames.Headline(list)]
	if f.Mark {
		return "an unknown line (" + untrusted.Clean(api) + ")"
	}
	return frameText(f, lineColumns)
}

// importedTexts is "owned by server [700]", "allocated at serve.py:12 load", for each known owner.
func importedTexts(s *ledger.Snapshot, st callstack.Stacks, x *ledger.Site) (list []string) {
	for i := range x.Owners {
		w := &x.Owners[i]
		list = append(list, "owned by "+processName(&s.Processes[w.Process]), "allocated at "+lineText(st, w.Stack, w.API), untrusted.Clean(w.API))
	}
	if x.MoreOwners {
		list = append(list, "and by others")
	}
	return list
}

// ownerLabels labels a sample of imported memory with its owners.
func ownerLabels(s *ledger.Snapshot, st callstack.Stacks, x *ledger.Site, label map[string][]string, number map[string][]int64) {
	if x == nil {
		return
	}
	for i := range x.Owners {
		w := &x.Owners[i]
		p := &s.Processes[w.Process]
		label["owner"] = append(label["owner"], processName(p))
		label["owner_site"] = append(label["owner_site"], lineText(st, w.Stack, w.API))
		number["owner_pid"] = append(number["owner_pid"], int64(p.PID))
	}
}
