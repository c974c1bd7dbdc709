// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// FuzzNames writes every report of a process whose every name is what the fuzzer chose: nothing
// gets to the terminal that is not a character of the text, JSON and profiles have it clean too,
// and a long name does not fill the page.
func FuzzNames(f *testing.F) {
	f.Add("step", "/home/ada/train.py", "python3", "cudaMalloc")
	f.Add("\x1b]0;owned\a", "/tmp/\n\u202ex.py", "</script>", "\u009b31m")
	f.Add(strings.Repeat("很", 3000), strings.Repeat("a/", 3000), "\xff\xfe", "a\rb\tc\u2028")
	f.Fuzz(func(t *testing.T, function, file, comm, api string) {
		m := &callstack.Mapping{Path: file, BuildID: comm, Start: 1, Limit: 1 << 20}
		st := reporttest.StackMap{1: {{Function: api, SystemName: api, Mapping: m, Address: 4}, {Function: function, File: file, Line: 3, Python: true}, {Function: function, SystemName: function, Mapping: m, Address: 8, Inlined: true}, {Function: comm, Mapping: m, Address: 8}}}
		s := reporttest.Snapshot()
		s.Host, s.Warnings = comm, []string{function, api}
		s.Processes = []ledger.Process{{PID: 666, Comm: comm, Exe: file, Begin: s.Begin, Workload: ledger.Workload{Job: api, Pod: function, Namespace: comm, Container: file, Rank: "1"}}}
		s.GPUs = []ledger.GPU{{UUID: comm, Name: function, Total: 1 << 30}}
		s.Sites = []ledger.Site{{Stack: 1, API: api, Kind: ledger.Device, LiveBytes: 1 << 20, LiveObjects: 1, AllocBytes: 1 << 20, AllocObjects: 1}}
		s.Balances, s.Failures = []ledger.Balance{{UUID: comm, Usage: 9 << 20, Baseline: 8 << 20, Live: 1 << 20}}, nil
		s.Tensors = []ledger.Tensors{{Allocated: 4 << 20, Reserved: 4 << 20, Older: 4 << 20}}
		s.Walks = reporttest.NamedWalks(function, file, comm)
		s.Sites[0].Holders = []ledger.SiteHolder{{Holder: 0, Bytes: 1 << 19}}
		var summary, leaks, brief, tree, stats, table, text, packed bytes.Buffer
		for what, err := range map[string]error{
			"summary": WriteSummary(&summary, s, st, report.Options{}, Screen{Width: 100}),
			"leaks":   WriteLeaks(&leaks, s, st, report.Options{}, Screen{Width: 100}),
			"brief":   WriteLeaksBrief(&brief, s, st, report.Options{}, Screen{Width: 80}),
			"tree":    WriteTree(&tree, s, st, report.Options{}, Screen{Width: 100}),
			"stats":   WriteStats(&stats, s, nil, st, report.Options{}, Screen{Width: 100}),
			"table":   WriteTable(&table, s, st, report.Options{}, Screen{Width: 100}),
			"JSON":    json.WriteLeaks(&text, s, st, report.Options{}),
			"profile": profile.Write(&packed, s, st),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		for what, b := range map[string]*bytes.Buffer{"summary": &summary, "leaks": &leaks, "brief": &brief, "tree": &tree, "stats": &stats, "table": &table, "JSON": &text} {
			if !reporttest.Printable(b.String()) {
				t.Errorf("%s: %q", what, b.String())
			}
			if b.Len() > 1<<20 {
				t.Errorf("%s has %d bytes", what, b.Len())
			}
		}
		if _, err := profile.Read(&packed); err != nil {
			t.Errorf("read our own profile: %v", err)
		}
	})
}
