// SPDX-License-Identifier: Apache-2.0

// Package filekind recognizes files that people mistake for captures and profiles, and returns the
// command that reads each.
package filekind

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// kindHead is how many bytes of a file its kind is deduced from.
const kindHead = 64 << 10

// Kind is what a file is, and the command that reads it. The zero value is an unknown file.
type Kind struct {
	Class Class
	// "a pprof profile", "go tool pprof FILE". FILE stands for the path; how is "" if unknown.
	what, how string
}

// Class distinguishes the files that vramprof reads.
type Class int

// Classes of files.
const (
	Other   Class = iota
	Capture       // also one that was changed, so that it cannot be read
	Profile       // of pprof
	Pickle        // of Python, such as a memory snapshot of PyTorch
)

func begins(magic string) func([]byte) bool {
	return func(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }
}

// elfOf recognizes ELF files by their type.
func elfOf(types ...uint16) func([]byte) bool {
	return func(head []byte) bool {
		if !begins("\x7fELF")(head) || len(head) < 18 {
			return false
		}
		for _, t := range types {
			if binary.LittleEndian.Uint16(head[16:]) == t {
				return true
			}
		}
		return false
	}
}

func isPickle(head []byte) bool {
	return len(head) > 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5
}

func matches(expression string) func([]byte) bool {
	r := regexp.MustCompile(expression)
	return func(head []byte) bool { return utf8.Valid(head[:min(len(head), 200)]) && r.Match(head) }
}

// kinds are the files that people mistake for captures, the first that fits first.
var kinds = []struct {
	is   func(head []byte) bool
	kind Kind
}{
	{begins("\x89VRAM\r\n\x1a"), Kind{Capture, "a capture", "vramprof report FILE"}},
	{begins("\x89VRAM"), Kind{Capture, "a capture whose line ends were converted: copy it again as a binary file", ""}},
	{elfOf(4), Kind{Other, "a core dump, which vramprof does not read", "trace the running process: vramprof record -p PID"}},
	{elfOf(2, 3), Kind{Other, "a program or library", "trace the program: vramprof record -- FILE"}},
	{matches(`(?i)^\s*<!doctype html`), Kind{Other, "a page", "open it in a browser"}},
	{matches(`^[^\n]* \[\d+\] ran out of memory`), Kind{Other, "a record of an out-of-memory error", "it is text: less FILE; its profile ends in .pb.gz"}},
	{matches(`^\d+ process(es)? [^\n]*traced `), Kind{Other, "a report as text", "less FILE"}},
	{matches(`^\s*\{(?s:.*)"traceEvents"`), Kind{Other, "a timeline", "open it in https://ui.perfetto.dev"}},
	{matches(`^\s*[{\[]`), Kind{Other, "JSON, which vramprof writes but does not read", "jq . FILE"}},
	{matches(`^[^\n]*;[^\n]* \d+\n`), Kind{Other, "folded stacks", "flamegraph.pl FILE, or open it in https://www.speedscope.app"}},
	{isPickle, Kind{Pickle, "a pickle of Python, such as a memory snapshot of PyTorch", "open it in https://pytorch.org/memory_viz"}},
	{begins("\x28\xb5\x2f\xfd"), Kind{Other, "compressed", "unpack it first: zstd -d FILE"}},
	{begins("\xfd7zXZ\x00"), Kind{Other, "compressed", "unpack it first: xz -d FILE"}},
	{begins("BZh"), Kind{Other, "compressed", "unpack it first: bzip2 -d FILE"}},
	{begins("PK\x03\x04"), Kind{Other, "a zip file, such as a checkpoint of PyTorch", ""}},
	{begins("SQLite format 3\x00"), Kind{Other, "a database, such as nsys exports", ""}},
}

// Of returns what a file is, unknown if it cannot be read.
func Of(path string) Kind {
	f, err := untrusted.OpenRegular(path)
	if err != nil {
		return Kind{}
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, kindHead))
	if err != nil {
		return Kind{}
	}
	return kindOf(head)
}

// Known reports whether it is known what the file is.
func (k Kind) Known() bool { return k.what != "" }

// Text describes a file that should be a capture, or a profile too, and names the command that
// reads it: "it is a page, not a capture (open it in a browser)".
func (k Kind) Text(path, wanted string) string {
	text := "it is " + k.what
	if k.Class != Capture {
		text += ", not " + wanted
	}
	if k.how != "" {
		text += " (" + strings.ReplaceAll(k.how, "FILE", path) + ")"
	}
	return text
}

// kindOf returns what a file with this beginning is.
func kindOf(head []byte) Kind {
	if len(head) == 0 {
		return Kind{what: "empty"}
	}
	if inside, ok := unzipped(head); ok {
		const unpack = "unpack it first: gunzip FILE"
		if len(inside) == 0 {
			return Kind{Other, "a gzip file", unpack}
		}
		if inside[0] == 0x0a { // the sample types of a profile
			return Kind{Profile, "a pprof profile", "go tool pprof FILE, or vramprof diff A B"}
		}
		if k := kindOf(inside); k.Known() {
			if k.Class == Pickle {
				k.Class = Other // it is not read before it is unpacked
			}
			return Kind{k.Class, k.what + " that was compressed", unpack}
		}
		return Kind{Other, "a gzip file", unpack}
	}
	for _, k := range kinds {
		if k.is(head) {
			return k.kind
		}
	}
	return Kind{}
}

// unzipped returns the beginning of what a gzip file contains, and whether it is a gzip file.
func unzipped(head []byte) ([]byte, bool) {
	if !begins("\x1f\x8b")(head) {
		return nil, false
	}
	r, err := gzip.NewReader(bytes.NewReader(head))
	if err != nil {
		return nil, true
	}
	inside, _ := io.ReadAll(io.LimitReader(r, kindHead)) // the head may end in the middle
	if begins("\x1f\x8b")(inside) {
		return nil, true
	}
	return inside, true
}
