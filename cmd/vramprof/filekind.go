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

// fileKind is what a file is, and the command that reads it.
type fileKind struct {
	is func(head []byte) bool
	// "a pprof profile", "go tool pprof FILE". FILE stands for the path; how is "" if unknown.
	what, how string
}

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
var fileKinds = []fileKind{
	{begins("\x89VRAM\r\n\x1a"), "a capture", "vramprof report FILE"},
	{begins("\x89VRAM"), "a capture whose line ends were converted: copy it again as a binary file", ""},
	{elfOf(4), "a core dump, which vramprof does not read", "trace the running process: vramprof record -p PID"},
	{elfOf(2, 3), "a program or library", "trace the program: vramprof record -- FILE"},
	{matches(`(?i)^\s*<!doctype html`), "a page", "open it in a browser"},
	{matches(`^[^\n]* \[\d+\] ran out of memory`), "a record of an out-of-memory error", "it is text: less FILE; its profile ends in .pb.gz"},
	{matches(`^\d+ process(es)? [^\n]*traced `), "a report as text", "less FILE"},
	{matches(`^\s*\{(?s:.*)"traceEvents"`), "a timeline", "open it in https://ui.perfetto.dev"},
	{matches(`^\s*[{\[]`), "JSON, which vramprof writes but does not read", "jq . FILE"},
	{matches(`^[^\n]*;[^\n]* \d+\n`), "folded stacks", "flamegraph.pl FILE, or open it in https://www.speedscope.app"},
	{isPickle, "a pickle of Python, such as a memory snapshot of PyTorch", "open it in https://pytorch.org/memory_viz"},
	{begins("\x28\xb5\x2f\xfd"), "compressed", "unpack it first: zstd -d FILE"},
	{begins("\xfd7zXZ\x00"), "compressed", "unpack it first: xz -d FILE"},
	{begins("BZh"), "compressed", "unpack it first: bzip2 -d FILE"},
	{begins("PK\x03\x04"), "a zip file, such as a checkpoint of PyTorch", ""},
	{begins("SQLite format 3\x00"), "a database, such as nsys exports", ""},
}

// describeFile returns what a file is that should be a capture, or a profile too, and which command
// reads it: "it is a page, not a capture (open it in a browser)". It returns "" if that is unknown.
func describeFile(path, wanted string) string {
	f, err := untrusted.OpenRegular(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, kindHead))
	if err != nil {
		return ""
	}
	what, how := kindOf(head)
	if what == "" {
		return ""
	}
	text := "it is " + what
	if !strings.Contains(what, "capture") {
		text += ", not " + wanted
	}
	if how != "" {
		text += " (" + strings.ReplaceAll(how, "FILE", path) + ")"
	}
	return text
}

// kindOf returns what a file with this beginning is, and what reads it.
func kindOf(head []byte) (what, how string) {
	if len(head) == 0 {
		return "empty", ""
	}
	if inside, ok := unzipped(head); ok {
		switch what, _ := kindOf(inside); {
		case len(inside) > 0 && inside[0] == 0x0a: // the sample types of a profile
			return "a pprof profile", "go tool pprof FILE, or vramprof diff A B"
		case what != "" && what != "empty":
			return what + " that was compressed", "unpack it first: gunzip FILE"
		}
		return "a gzip file", "unpack it first: gunzip FILE"
	}
	for _, k := range fileKinds {
		if k.is(head) {
			return k.what, k.how
		}
	}
	return "", ""
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
