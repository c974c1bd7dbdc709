// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/tracer/unwind"
)

func TestFilesWithoutNamesAreWarnedOfUpToALimit(t *testing.T) {
	s := newStacks()
	defer s.close()
	for i := range maxNameWarnings + 3 {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("lib%02d.so", i))
		if err := os.WriteFile(path, []byte("not ELF"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		s.symbols.AddFile(path, &symbolize.Mapping{Path: path}, f, "")
	}
	list := s.warnings()
	if len(list) != maxNameWarnings+1 || !strings.HasPrefix(list[0], "no names of lib00.so: ") ||
		list[maxNameWarnings] != "names of further files are incomplete: 3" {
		t.Errorf("got %d warnings:\n%s", len(list), strings.Join(list, "\n"))
	}
}

func TestStacksBeyondTheLimitHaveNoFrames(t *testing.T) {
	s := newStacks()
	defer s.close()
	s.most = 10
	for i := range uint64(13) {
		s.add(unwind.Stack{ID: i, PID: uint32(i), Frames: []unwind.Frame{{Function: fmt.Sprint("f", i)}}})
	}
	s.add(unwind.Stack{ID: 3, Frames: []unwind.Frame{{Function: "again"}}}) // sent again, it has its place
	if f := s.Stack(3); len(f) != 1 || f[0].Function != "again" {
		t.Errorf("a stack that was sent again is %v", f)
	}
	if f := s.Stack(11); len(f) != 0 {
		t.Errorf("a stack beyond the limit is %v", f)
	}
	if w := s.warnings(); len(w) != 1 || w[0] != "too many different stacks: 3 beyond the first 10 have no frames" {
		t.Errorf("warnings %q", w)
	}
}

func TestOneProcessDoesNotTakeThePlacesOfOthersStacks(t *testing.T) {
	s := newStacks()
	defer s.close()
	s.most = 12
	frames := []unwind.Frame{{Function: "f"}}
	for i := range uint64(100) {
		s.add(unwind.Stack{ID: 1000 + i, PID: 7, Frames: frames})
	}
	for i := range uint64(3) {
		s.add(unwind.Stack{ID: i, PID: 8, Frames: frames})
		if len(s.Stack(i)) != 1 {
			t.Errorf("stack %d of another process has no frames", i)
		}
	}
	if w := s.warnings(); len(w) != 1 || w[0] != "process 7 has too many different stacks: 97 beyond its first 3 have no frames" {
		t.Errorf("warnings %q", w)
	}
}
