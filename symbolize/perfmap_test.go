// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// perfMapTests lists perf maps, each followed by "->" and addresses with their expected names.
const perfMapTests = `
7f00 10 py::train:/home/me/train.py
7f10 8 name with spaces
->
7eff -
7f00 py::train:/home/me/train.py
7f0f py::train:/home/me/train.py
7f17 name with spaces
7f18 -

# The later of two entries is valid; what it does not cover stays.
1000 100 old
1040 20 new
1040 20 newest
->
1000 old
103f old
1040 newest
105f newest
1060 old

# Prefixes are allowed, damaged lines are skipped.
0x20 0x8 prefixed
zz 8 bad start
30 zz bad size
40 0 empty
50 8
ffffffffffffffff 2 wraps
60 8 ` + "\x1b[31mred" + `
->
20 prefixed
40 -
50 -
60 [31mred
ffffffffffffffff -

->
0 -
`

func TestPerfMap(t *testing.T) {
	for i, test := range strings.Split(strings.TrimSpace(perfMapTests), "\n\n") {
		in, want, ok := strings.Cut("\n"+test, "\n->\n")
		if !ok {
			t.Fatalf("test %d has no ->", i)
		}
		s := New(Options{})
		if err := s.AddPerfMap(42, strings.NewReader(in)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
			hex, _, _ := strings.Cut(line, " ")
			address, err := strconv.ParseUint(hex, 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			f, ok := s.JITFrame(42, address)
			if !ok {
				f.Function = "-"
			} else if f.Address != address || f.Mapping != nil {
				t.Errorf("frame %+v", f)
			}
			got = append(got, hex+" "+f.Function)
		}
		if got := strings.Join(got, "\n"); got != strings.TrimSpace(want) {
			t.Errorf("%s\n->\ngot\n%s\nwant\n%s", in, got, want)
		}
	}
}

func TestPerfMapReplacesEarlierOne(t *testing.T) {
	s := New(Options{})
	for _, text := range []string{"10 10 first", "10 10 second"} {
		if err := s.AddPerfMap(1, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	if f, _ := s.JITFrame(1, 0x10); f.Function != "second" {
		t.Errorf("got %s", f.Function)
	}
	if _, ok := s.JITFrame(2, 0x10); ok {
		t.Error("the map of one process named another's code")
	}
}

func TestPerfMapKeepsWhatItRead(t *testing.T) {
	s := New(Options{})
	broken := errors.New("broken")
	err := s.AddPerfMap(1, io.MultiReader(strings.NewReader("10 10 first\n"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("got error %v", err)
	}
	if f, _ := s.JITFrame(1, 0x10); f.Function != "first" {
		t.Errorf("got %s", f.Function)
	}
}

func TestPerfMapsAreBounded(t *testing.T) {
	s := New(Options{})
	var text bytes.Buffer
	for i := range maxPerfEntries + 10 {
		fmt.Fprintf(&text, "%x 8 function_%d\n", i*8, i)
	}
	const processes = 10
	for pid := range uint32(processes) {
		if err := s.AddPerfMap(pid, bytes.NewReader(text.Bytes())); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.jitSize(); n > maxPerfTotal {
		t.Errorf("%d bytes are kept", n)
	}
	if _, ok := s.JITFrame(processes-1, 8); !ok {
		t.Error("the newest map was dropped")
	}
	if _, ok := s.JITFrame(0, 8); ok {
		t.Error("the oldest map was kept")
	}
}

func FuzzPerfMap(f *testing.F) {
	for _, test := range strings.Split(perfMapTests, "\n\n") {
		in, _, _ := strings.Cut(test, "\n->\n")
		f.Add(in, uint64(0x1040))
	}
	f.Fuzz(func(t *testing.T, in string, address uint64) {
		s := New(Options{})
		if err := s.AddPerfMap(1, strings.NewReader(in)); err != nil && len(in) < maxPerfLine {
			t.Error(err)
		}
		if frame, ok := s.JITFrame(1, address); ok && (frame.Function == "" || frame.Function != untrusted.Clean(frame.Function)) {
			t.Errorf("frame named %q", frame.Function)
		}
	})
}
