// SPDX-License-Identifier: Apache-2.0

package main

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

// fileKind is what a file is, and the command that reads it. The zero value is an unknown file.
type fileKind struct {
	class fileClass
	// "a pprof profile", "go tool pprof FILE". FILE stands for the path; how is "" if unknown.
	what, how string
}

// fileClass distinguishes the files that vramprof reads.
type fileClass int

const (
	otherClass   fileClass = iota
	captureClass           // also one that was changed, so that it cannot be read
	profileClass
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

// fileKinds are the files that people mistake for captures, the first that fits first.
var fileKinds = []struct {
	is   func(head []byte) bool
	kind fileKind
}{
	{begins("\x89VRAM\r\n\x1a"), fileKind{captureClass, "a capture", "vramprof report FILE"}},
	{begins("\x89VRAM"), fileKind{captureClass, "a capture whose line ends were converted: copy it again as a binary file", ""}},
	{elfOf(4), fileKind{otherClass, "a core dump, which vramprof does not read", "trace the running process: vramprof record -p PID"}},
	{elfOf(2, 3), fileKind{otherClass, "a program or library", "trace the program: vramprof record -- FILE"}},
	{matches(`(?i)^\s*<!doctype html`), fileKind{otherClass, "a page", "open it in a browser"}},
	{matches(`^[^\n]* \[\d+\] ran out of memory`), fileKind{otherClass, "a record of an out-of-memory error", "it is text: less FILE; its profile ends in .pb.gz"}},
	{matches(`^\d+ process(es)? [^\n]*traced `), fileKind{otherClass, "a report as text", "less FILE"}},
	{matches(`^\s*\{(?s:.*)"traceEvents"`), fileKind{otherClass, "a timeline", "open it in https://ui.perfetto.dev"}},
	{matches(`^\s*[{\[]`), fileKind{otherClass, "JSON, which vramprof writes but does not read", "jq . FILE"}},
	{matches(`^[^\n]*;[^\n]* \d+\n`), fileKind{otherClass, "folded stacks", "flamegraph.pl FILE, or open it in https://www.speedscope.app"}},
	{isPickle, fileKind{otherClass, "a pickle of Python, such as a memory snapshot of PyTorch", "open it in https://pytorch.org/memory_viz"}},
	{begins("\x28\xb5\x2f\xfd"), fileKind{otherClass, "compressed", "unpack it first: zstd -d FILE"}},
	{begins("\xfd7zXZ\x00"), fileKind{otherClass, "compressed", "unpack it first: xz -d FILE"}},
	{begins("BZh"), fileKind{otherClass, "compressed", "unpack it first: bzip2 -d FILE"}},
	{begins("PK\x03\x04"), fileKind{otherClass, "a zip file, such as a checkpoint of PyTorch", ""}},
	{begins("SQLite format 3\x00"), fileKind{otherClass, "a database, such as nsys exports", ""}},
}

// kindOfFile returns what a file is, unknown if it cannot be read.
func kindOfFile(path string) fileKind {
	f, err := untrusted.OpenRegular(path)
	if err != nil {
		return fileKind{}
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, kindHead))
	if err != nil {
		return fileKind{}
	}
	return kindOf(head)
}

// known reports whether it is known what the file is.
func (k fileKind) known() bool { return k.what != "" }

// text describes a file that should be a capture, or a profile too, and names the command that reads
// it: "it is a page, not a capture (open it in a browser)".
func (k fileKind) text(path, wanted string) string {
	text := "it is " + k.what
	if k.class != captureClass {
		text += ", not " + wanted
	}
	if k.how != "" {
		text += " (" + strings.ReplaceAll(k.how, "FILE", path) + ")"
	}
	return text
}

// kindOf returns what a file with this beginning is.
func kindOf(head []byte) fileKind {
	if len(head) == 0 {
		return fileKind{what: "empty"}
	}
	if inside, ok := unzipped(head); ok {
		const unpack = "unpack it first: gunzip FILE"
		if len(inside) == 0 {
			return fileKind{otherClass, "a gzip file", unpack}
		}
		if inside[0] == 0x0a { // the sample types of a profile
			return fileKind{profileClass, "a pprof profile", "go tool pprof FILE, or vramprof diff A B"}
		}
		if k := kindOf(inside); k.known() {
			return fileKind{k.class, k.what + " that was compressed", unpack}
		}
		return fileKind{otherClass, "a gzip file", unpack}
	}
	for _, k := range fileKinds {
		if k.is(head) {
			return k.kind
		}
	}
	return fileKind{}
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
