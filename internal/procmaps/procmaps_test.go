// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestLinesAreParsedWhateverTheirPathsHold(t *testing.T) {
	for line, want := range map[string]Mapping{
		"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/python3": {Start: 0x400000, End: 0x452000, Offset: 0x1000,
			Readable: true, Executable: true, Private: true, File: File{8, 2, 173521}, Path: "/usr/bin/python3"},
		"7f00-7f10 rw-s 00000000 103:fffff 18446744073709551615 /dev/nvidia 0 (deleted)": {Start: 0x7f00, End: 0x7f10,
			Readable: true, Writable: true, File: File{0x103, 0xfffff, 1<<64 - 1}, Path: "/dev/nvidia 0 (deleted)"},
		"7f00-7f10 ---p 00000000 00:00 0 ": {Start: 0x7f00, End: 0x7f10, Private: true},
		"7f00-7f10 ---p 00000000 00:00 0":  {Start: 0x7f00, End: 0x7f10, Private: true},
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]": {Start: 0xffffffffff600000, End: 0xffffffffff601000,
			Executable: true, Private: true, Path: "[vsyscall]"},
		`7f00-7f10 r--p 00000000 00:30 7 /tmp/x\0127f00-8f00 r-xp 0 00:30 8 /y`: {Start: 0x7f00, End: 0x7f10,
			Readable: true, Private: true, File: File{0, 0x30, 7}, Path: `/tmp/x\0127f00-8f00 r-xp 0 00:30 8 /y`},
		"7f10-7f00 rw-p 00000000 00:00 0": {}, "7f00-7f00 rw-p 00000000 00:00 0": {},
		"7f00 rw-p 00000000 00:00 0": {}, "7f00-7f10 rw 00000000 00:00 0": {}, "7f00-7f10 rw-p x 00:00 0": {},
		"7f00-7f10 rw-p 0 0000 0": {}, "7f00-7f10 rw-p 0 00:00 f": {}, "7f00-7f10 rw-p 0 00:00": {}, "": {}, " ": {}, "[vdso]": {},
		"7f00-10000000000000000 rw-p 0 00:00 0": {}, "7f00-7f10 rw-p 0 100000000:00 0": {},
	} {
		if got, ok := Parse(line); got != want || ok != (want != Mapping{}) {
			t.Errorf("%q: got %+v, %t, want %+v", line, got, ok, want)
		}
	}
}

func TestEachEndsWhereItIsToldOrMust(t *testing.T) {
	const line = "7f00-7f10 rw-p 00000000 00:00 0 /x\n"
	long := "7f00-7f10 rw-p 00000000 00:00 0 " + strings.Repeat("/", maxLine) + "\n"
	for _, c := range []struct {
		text       string
		most, want int
		err        error
	}{
		{line + "nonsense\n" + line, 9, 2, nil}, {line + line + line, 2, 2, nil}, {"", 9, 0, nil},
		{line + long + line, 9, 1, bufio.ErrTooLong}, {line + long, 1, 1, nil},
	} {
		n := 0
		err := Each(strings.NewReader(c.text), func(Mapping) bool { n++; return n < c.most })
		if n != c.want || !errors.Is(err, c.err) {
			t.Errorf("%.80q: got %d mappings, %v, want %d, %v", c.text, n, err, c.want, c.err)
		}
	}
	if n := len(slices.Collect(All([]byte(line + long + "nonsense\n" + line)))); n != 3 {
		t.Errorf("All has %d mappings, want 3", n)
	}
}

func TestThisProcessIsParsedWholly(t *testing.T) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip(err)
	}
	n := 0
	for m := range All(text) {
		n++
		if !strings.Contains(string(text), fmt.Sprintf("%08x-%08x ", m.Start, m.End)) || m.Inode != 0 && !strings.HasPrefix(m.Path, "/") {
			t.Errorf("there is no mapping %+v", m)
		}
	}
	if want := strings.Count(string(text), "\n"); n != want {
		t.Errorf("%d of %d lines were parsed", n, want)
	}
}

func TestDeletedIsCutOnce(t *testing.T) {
	for path, want := range map[string]string{"/a": "/a", "/a (deleted)": "/a", "/a (deleted) (deleted)": "/a (deleted)", "": ""} {
		if got, deleted := CutDeleted(path); got != want || deleted != (path != want) {
			t.Errorf("%q: got %q, %t", path, got, deleted)
		}
	}
}

// FuzzParse parses a line, and again the line that the kernel would write for the result.
func FuzzParse(f *testing.F) {
	f.Add("7f00-8f00 r-xp 00001000 fd:01 1234 /usr/lib/libcuda.so.550.1 (deleted)")
	f.Add("7f00-8f00 ---p 00000000 00:00 0")
	f.Fuzz(func(t *testing.T, line string) {
		m, ok := Parse(line)
		if !ok {
			if m != (Mapping{}) {
				t.Errorf("%q: %+v", line, m)
			}
			return
		}
		right := func(has bool, letter string) string {
			if has {
				return letter
			}
			return "-"
		}
		again := fmt.Sprintf("%08x-%08x %s%s%s%s %08x %02x:%02x %d %s", m.Start, m.End, right(m.Readable, "r"), right(m.Writable, "w"),
			right(m.Executable, "x"), right(m.Private, "p"), m.Offset, m.Major, m.Minor, m.Inode, m.Path)
		if got, ok := Parse(again); !ok || got != m || m.Start >= m.End || len(m.Path) > len(line) {
			t.Errorf("%q: %+v, again %+v", line, m, got)
		}
	})
}
