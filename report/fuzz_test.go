// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// printable says whether text may go to a terminal: no control characters but the ends of lines.
func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	})
}

func packed(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(text)
	_ = w.Close()
	return b.Bytes()
}

// FuzzReadProfile compares a profile that a user gives with itself and with ours.
func FuzzReadProfile(f *testing.F) {
	var ours bytes.Buffer
	if err := WriteProfile(&ours, testSnapshot(), testStacks()); err != nil {
		f.Fatal(err)
	}
	good, err := ReadProfile(bytes.NewReader(ours.Bytes()))
	if err != nil {
		f.Fatal(err)
	}
	r, err := gzip.NewReader(&ours)
	if err != nil {
		f.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(packed(text)) // twice compressed
	f.Add([]byte("heap profile: 1: 2 [3: 4] @ heapprofile\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ReadProfile(bytes.NewReader(packed(text)))
		if err != nil {
			return
		}
		for _, pair := range [][2]Profile{{p, good}, {good, p}, {p, p}} {
			var out bytes.Buffer
			if err := WriteDiff(&out, Diff(pair[0], pair[1]), [2]string{}, Options{}, Screen{Width: 100}); err != nil {
				t.Fatal(err)
			}
			if !printable(out.String()) {
				t.Errorf("%q", out.String())
			}
			if n := out.Len(); n > 16<<10 {
				t.Errorf("a difference of %d bytes", n)
			}
			_ = WriteDifference(io.Discard, pair[0], pair[1])
		}
	})
}

func TestAProfileThatUnpacksWithoutEndIsNotRead(t *testing.T) {
	pipe, to := io.Pipe()
	go func() {
		w := gzip.NewWriter(to)
		zeros := make([]byte, 1<<20)
		for range maxProfile>>20 + 1 {
			if _, err := w.Write(zeros); err != nil {
				return
			}
		}
		_ = w.Close()
		_ = to.Close()
	}()
	defer pipe.Close()
	if _, err := ReadProfile(pipe); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v", err)
	}
}

// FuzzNames writes every report of a process whose every name is what the fuzzer chose: nothing gets to the terminal
// that is not a character of the text, JSON and profiles have it clean too, and a long name does not fill the page.
func FuzzNames(f *testing.F) {
	f.Add("step", "/home/ada/train.py", "python3", "cudaMalloc")
	f.Add("\x1b]0;owned\a", "/tmp/\n\u202ex.py", "</script>", "\u009b31m")
	f.Add(strings.Repeat("很", 3000), strings.Repeat("a/", 3000), "\xff\xfe", "a\rb\tc\u2028")
	f.Fuzz(func(t *testing.T, function, file, comm, api string) {
		m := &callstack.Mapping{Path: file, BuildID: comm, Start: 1, Limit: 1 << 20}
		st := stackMap{1: {{Function: api, SystemName: api, Mapping: m, Address: 4}, {Function: function, File: file, Line: 3, Python: true}, {Function: function, SystemName: function, Mapping: m, Address: 8, Inlined: true}, {Function: comm, Mapping: m, Address: 8}}}
		s := testSnapshot()
		s.Host, s.Warnings = comm, []string{function, api}
		s.Processes = []ledger.Process{{PID: 666, Comm: comm, Exe: file, Begin: s.Begin, Workload: ledger.Workload{Job: api, Pod: function, Namespace: comm, Container: file, Rank: "1"}}}
		s.GPUs = []ledger.GPU{{UUID: comm, Name: function, Total: 1 << 30}}
		s.Sites = []ledger.Site{{Stack: 1, API: api, Kind: ledger.Device, LiveBytes: 1 << 20, LiveObjects: 1, AllocBytes: 1 << 20, AllocObjects: 1}}
		s.Balances, s.Failures = nil, nil
		var summary, leaks, tree, stats, table, text, packed bytes.Buffer
		for what, err := range map[string]error{
			"summary": WriteSummary(&summary, s, st, Options{}, Screen{Width: 100}),
			"leaks":   WriteLeaks(&leaks, s, st, Options{}, Screen{Width: 100}),
			"tree":    WriteTree(&tree, s, st, Options{}, Screen{Width: 100}),
			"stats":   WriteStats(&stats, s, nil, st, Options{}, Screen{Width: 100}),
			"table":   WriteTable(&table, s, st, Options{}, Screen{Width: 100}),
			"JSON":    WriteLeaksJSON(&text, s, st, Options{}),
			"profile": WriteProfile(&packed, s, st),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		for what, b := range map[string]*bytes.Buffer{"summary": &summary, "leaks": &leaks, "tree": &tree, "stats": &stats, "table": &table, "JSON": &text} {
			if !printable(b.String()) {
				t.Errorf("%s: %q", what, b.String())
			}
			if b.Len() > 1<<20 {
				t.Errorf("%s has %d bytes", what, b.Len())
			}
		}
		if _, err := ReadProfile(&packed); err != nil {
			t.Errorf("read our own profile: %v", err)
		}
	})
}
