// SPDX-License-Identifier: Apache-2.0

package html

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// namesPage is a page of which every name is one of these.
func namesPage(t *testing.T, function, file, comm, api string) string {
	m := &callstack.Mapping{Path: file, BuildID: comm, Start: 1, Limit: 1 << 20}
	st := stackMap{1: {{Function: api, Mapping: m, Address: 4}, {Function: function, File: file, Line: 3, Python: true}, {Function: comm, Mapping: m, Address: 8}}}
	s := &ledger.Snapshot{Host: comm, Begin: begin, End: begin + second, Warnings: []string{function},
		Processes: []ledger.Process{{PID: 666, Comm: comm, Exe: file, Begin: begin, Workload: ledger.Workload{Job: api, Pod: function, Rank: "1"}}},
		GPUs:      []ledger.GPU{{UUID: comm, Name: function, Total: gib}},
		Sites:     []ledger.Site{{Stack: 1, API: api, Kind: ledger.Device, LiveBytes: mib, LiveObjects: 1, AllocBytes: mib, AllocObjects: 1}}}
	s.Walks = walksOf(function, file, comm)
	s.Processes = append(s.Processes, ledger.Process{PID: 667, Begin: begin})
	return string(written(t, Input{Snapshot: s, Stacks: st, Title: file, Advice: []string{api}, Verdicts: []report.SiteVerdict{{Class: function, Text: function}}}))
}

// FuzzPage writes a page of names that the fuzzer chose. All of the page but its data is the same
// for all names, and in the data there is nothing that could end it.
func FuzzPage(f *testing.F) {
	f.Add("step", "/home/ada/train.py", "python3", "cudaMalloc")
	f.Add("</script><script>alert(1)</script>", "<!--<script>", "]]>\u2028\x00", "\"'`${x}\\")
	f.Add("</ScRiPt\n>", strings.Repeat("很<b>", 300), "\xff&lt;", "{{.}}")
	f.Fuzz(func(t *testing.T, function, file, comm, api string) {
		const begin, end = `<script id="data" type="application/json">`, "</script>"
		apart := func(page string) (around, data string) {
			before, rest, _ := strings.Cut(page, begin)
			data, after, ok := strings.Cut(rest, end)
			if !ok {
				t.Fatal("no data")
			}
			return before + after, data
		}
		plain, _ := apart(namesPage(t, "a", "b", "c", "d"))
		around, data := apart(namesPage(t, function, file, comm, api))
		if around != plain {
			t.Error("names are outside of the data")
		}
		if strings.ContainsAny(data, "<>&\u2028\u2029") || strings.ContainsFunc(data, unicode.IsControl) {
			t.Errorf("data has characters of markup: %.300q", data)
		}
		if err := json.Unmarshal([]byte(data), new(payload)); err != nil {
			t.Error(err)
		}
		if len(data) > 64<<10 {
			t.Errorf("%d bytes of data", len(data))
		}
	})
}
