// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/ianlancetaylor/demangle"

	reportjson "github.com/vramprof/vramprof/report/json"
)

// allocated is one line of alloc_cpp's own record.
type allocated struct {
	API, Kind         string
	Size, Count, Live int64
	Failed            int32    // result of the calls
	Stack, Signatures []string // root first, without and with parameters
	Inlined           []int
}

func TestProfileOfTemplatesAndInlinedFunctionsIsRight(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	program := startTarget(t, env, dir.Program("alloc_cpp"), "--wait")
	program.expectReady()
	s := startRecord(t, env, "-p", fmt.Sprint(program.pid())).ready()
	l := startLeaks(t, env, "-p", fmt.Sprint(program.pid())).ready()
	program.next()
	want := parseAllocated(t, program.until("done"))
	program.end()

	p := s.wait().profile()
	if len(p.Sample) != len(want)-1 { // all except the failure
		t.Errorf("%d samples, want %d", len(p.Sample), len(want)-1)
	}
	r := l.wait().leaks()
	checkNoLosses(t, r)
	for _, w := range want {
		if w.Failed != 0 {
			checkFailure(t, r, w)
			continue
		}
		i := slices.IndexFunc(p.Sample, func(s *profile.Sample) bool { return sameFrames(s, w) })
		if i < 0 {
			t.Errorf("no sample with %s", w.Signatures)
			continue
		}
		got := p.Sample[i]
		v := values{w.Count, w.Count * w.Size, w.Live, w.Live * w.Size}
		if values(got.Value) != v || label(got, "api") != w.API || label(got, "kind") != w.Kind {
			t.Errorf("%s: got %v %v, want %v %s %s", w.Signatures, got.Value, got.Label, v, w.API, w.Kind)
		}
	}
	if t.Failed() {
		t.Log(p)
	}
}

func parseAllocated(t *testing.T, lines []string) []allocated {
	t.Helper()
	list := make([]allocated, len(lines))
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line), &list[i]); err != nil {
			t.Fatal(err)
		}
	}
	if len(list) < 6 {
		t.Fatalf("the program printed %q", lines)
	}
	return list
}

// sameFrames compares names from main on, in full and simple, and which frames share a location
// with the frame into which they are inlined.
func sameFrames(s *profile.Sample, w allocated) bool {
	var names, signatures []string
	var inlined []int
	for i := len(s.Location) - 1; i >= 0; i-- {
		l := s.Location[i]
		for k := len(l.Line) - 1; k >= 0; k-- {
			f := l.Line[k].Function
			if names == nil && f.Name != "main" {
				continue
			}
			if k < len(l.Line)-1 {
				inlined = append(inlined, len(names))
			}
			names = append(names, f.Name)
			signatures = append(signatures, demangle.Filter(f.SystemName))
		}
	}
	names, signatures = append(names, label(s, "callee")), append(signatures, label(s, "api"))
	if len(names) != len(w.Stack) || !slices.Equal(inlined, w.Inlined) {
		return false
	}
	for i, name := range names {
		// The compiler writes no linkage name, hence no parameters, for static functions that are
		// inlined everywhere.
		bare := name == w.Stack[i] && slices.Contains(w.Inlined, i)
		if name != strings.Replace(arguments.ReplaceAllString(w.Stack[i], "<…>"), "lambda(int)", "lambda", 1) || signatures[i] != w.Signatures[i] && !bare {
			return false
		}
	}
	return true
}

var arguments = regexp.MustCompile(`<[^>]*>`) // of a template

func checkFailure(t *testing.T, r *reportjson.LeaksReport, w allocated) {
	t.Helper()
	if len(r.Failures) != 1 {
		t.Errorf("failures %+v, want one", r.Failures)
		return
	}
	f := r.Failures[0]
	if f.Result != w.Failed || f.Count != uint64(w.Count) || f.Bytes != uint64(w.Size) || f.API != w.API || f.Kind != w.Kind {
		t.Errorf("failure %+v, want %+v", f, w)
	}
	leaf := len(w.Signatures) - 2
	if got := f.Stack[f.Headline].Function; got != w.Signatures[leaf] {
		t.Errorf("failed in %s, want %s", got, w.Signatures[leaf])
	}
}
