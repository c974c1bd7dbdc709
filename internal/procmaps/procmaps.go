// SPDX-License-Identifier: Apache-2.0

// Package procmaps parses /proc/PID/maps. The kernel writes the lines, but the process chooses the
// paths in them: these are untrusted. Reading the file takes as long as the process wants, see
// procfs.Call.
package procmaps

import (
	"bufio"
	"bytes"
	"io"
	"iter"
	"strconv"
	"strings"
)

// maxLine is the longest line that Each reads, in bytes. A path that programs can open has at most
// 4 KiB, or 16 KiB if each byte is escaped.
const maxLine = 64 << 10

// Mapping is one range of addresses of a process.
type Mapping struct {
	Start, End uint64 // Start is less than End, which is the first address after the mapping
	Offset     uint64 // of Start in the file, in bytes
	Readable   bool
	Writable   bool
	Executable bool
	Private    bool // writes are not shared with others
	File
	Path string // of the file, with \012 for a newline and perhaps " (deleted)"; "[heap]"; or ""
}

// File identifies a mapped file. All fields are 0 without one.
type File struct {
	Major, Minor uint32 // the device
	Inode        uint64
}

// Parse parses a line without its newline, such as
// "7f0c8a000000-7f0c8a021000 r-xp 00001000 fd:01 1234   /usr/lib/libcuda.so.1 (deleted)".
// It returns false for any other text.
func Parse(line string) (Mapping, bool) {
	var fields [5]string
	rest := line
	for i := range fields {
		fields[i], rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
	}
	start, end, _ := strings.Cut(fields[0], "-")
	major, minor, _ := strings.Cut(fields[3], ":")
	rights, ok := fields[1], len(fields[1]) == 4
	number := func(text string, base, bits int) uint64 {
		n, err := strconv.ParseUint(text, base, bits)
		ok = ok && err == nil
		return n
	}
	m := Mapping{
		Start:  number(start, 16, 64),
		End:    number(end, 16, 64),
		Offset: number(fields[2], 16, 64),
		File:   File{uint32(number(major, 16, 32)), uint32(number(minor, 16, 32)), number(fields[4], 10, 64)},
		Path:   strings.TrimLeft(rest, " "),
	}
	if !ok || m.Start >= m.End {
		return Mapping{}, false
	}
	m.Readable, m.Writable, m.Executable, m.Private = rights[0] == 'r', rights[1] == 'w', rights[2] == 'x', rights[3] == 'p'
	return m, true
}

// Each calls do with each mapping until do returns false. It leaves out lines that it cannot parse.
// It returns the error of a failed read, and bufio.ErrTooLong at a line of 64 KiB or more. The
// caller limits how much r returns.
func Each(r io.Reader, do func(Mapping) bool) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if m, ok := Parse(lines.Text()); ok && !do(m) {
			return nil
		}
	}
	return lines.Err()
}

// All iterates over the mappings in text, with lines of any length. It leaves out lines that it
// cannot parse.
func All(text []byte) iter.Seq[Mapping] {
	return func(yield func(Mapping) bool) {
		for line := range bytes.Lines(text) {
			if m, ok := Parse(strings.TrimSuffix(string(line), "\n")); ok && !yield(m) {
				return
			}
		}
	}
}

// CutDeleted returns the path of a mapping without " (deleted)", and whether it had that: the file
// was deleted or replaced, unless its name ends so.
func CutDeleted(path string) (file string, deleted bool) {
	return strings.CutSuffix(path, " (deleted)")
}
