// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Files come and go for months: descriptors, tables and warnings go with them.
func TestForgottenFilesLeaveNothing(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "libdamaged.so")
	if err := os.WriteFile(damaged, []byte("not ELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	add := func(key, path string) *callstack.Mapping {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		m := &callstack.Mapping{Path: path, BuildID: "b"}
		s.AddFile(key, m, f, "")
		return m
	}
	for i := range 20 {
		key := fmt.Sprint("file ", i)
		m := add(key, program)
		s.AppendFrames(nil, key, m, 0x401000)
		add("damaged "+key, damaged)
	}
	kept := add("kept", program)
	if st := s.Stats(); st.Files != 21 || st.Rejected != 20 || len(s.Warnings()) != 1 {
		t.Fatalf("before: %+v, warnings %q", st, s.Warnings())
	}
	s.ForgetFiles(func(key string) bool { return key == "kept" })
	if st := s.Stats(); st.Files != 1 || st.Memory != 0 || len(s.Warnings()) != 0 || len(s.slow) != 0 {
		t.Errorf("after: %+v, warnings %q", st, s.Warnings())
	}
	if f := s.AppendFrames(nil, "file 3", kept, 0x401000); len(f) != 1 || !strings.Contains(f[0].Function, "+0x401000") {
		t.Errorf("a forgotten file names %+v", f)
	}
	m := add("file 3", program)
	s.AppendFrames(nil, "file 3", m, 0x401000)
	if st := s.Stats(); st.Files != 2 {
		t.Errorf("a file that came back: %+v", st)
	}
}

// A pid is given out again: the next process's code must not have the names of the one before.
func TestPerfMapsGoWithTheirProcesses(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	for pid := range uint32(4) {
		if err := s.AddPerfMap(pid, strings.NewReader("1000 10 f\n")); err != nil {
			t.Fatal(err)
		}
	}
	s.ForgetPerfMaps(func(pid uint32) bool { return pid != 2 })
	if _, ok := s.JITFrame(1, 0x1001); ok {
		t.Error("the code of an ended process still has names")
	}
	if _, ok := s.JITFrame(2, 0x1001); !ok {
		t.Error("the code of a running process has no names any more")
	}
}
