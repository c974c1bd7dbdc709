// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// needTools skips the test if a program of binutils or gcc is missing.
func needTools(tb testing.TB, names ...string) {
	tb.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			tb.Skipf("%s is not installed", name)
		}
	}
}

func command(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// compile builds a shared library from a source file in testdata.
func compile(tb testing.TB, source string, flags ...string) string {
	tb.Helper()
	compiler := "gcc"
	if strings.HasSuffix(source, ".cc") {
		compiler = "g++"
	}
	needTools(tb, compiler, "strip", "objcopy")
	lib := filepath.Join(tb.TempDir(), "lib"+strings.TrimSuffix(source, filepath.Ext(source))+".so")
	args := append([]string{"-shared", "-fPIC", "-o", lib, filepath.Join("testdata", source)}, flags...)
	command(tb, compiler, args...)
	return lib
}

// added returns a Symbolizer with one library added.
func added(tb testing.TB, lib string, o Options, root string) (*Symbolizer, *callstack.Mapping) {
	tb.Helper()
	f, err := untrusted.OpenRegular(lib)
	if err != nil {
		tb.Fatal(err)
	}
	s := New(o)
	tb.Cleanup(func() { s.Close() })
	m := &callstack.Mapping{Path: lib}
	if root != "" {
		m.Path = strings.TrimPrefix(lib, root)
	}
	s.AddFile(lib, m, f, root)
	return s, m
}

// symbolAddress finds a function in .symtab or .dynsym with debug/elf.
func symbolAddress(tb testing.TB, lib, name string) uint64 {
	tb.Helper()
	f, err := elf.Open(lib)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	all, _ := f.Symbols()
	dynamic, _ := f.DynamicSymbols()
	for _, s := range append(all, dynamic...) {
		if s.Name == name && s.Section != elf.SHN_UNDEF {
			return s.Value
		}
	}
	tb.Fatalf("%s has no symbol %s", lib, name)
	return 0
}

// codeAddresses lists every address inside a function of .text. It leaves out the padding between
// functions, which contains no calls.
func codeAddresses(tb testing.TB, lib string) (addresses []uint64) {
	tb.Helper()
	f, err := elf.Open(lib)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range all {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && int(s.Section) < len(f.Sections) && f.Sections[s.Section].Name == ".text" {
			for a := s.Value; a < s.Value+s.Size; a++ {
				addresses = append(addresses, a)
			}
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// describe formats frames as addr2line -fi does: function and file:line on alternating lines.
func describe(frames []callstack.Frame) string {
	var b strings.Builder
	for _, f := range frames {
		file, line := f.File, fmt.Sprint(f.Line)
		if file == "" {
			file = "??"
		}
		if f.Line == 0 {
			line = "?"
		}
		fmt.Fprintf(&b, "%s\n%s:%s\n", f.Function, file, line)
	}
	return b.String()
}

var (
	addressLine   = regexp.MustCompile(`(?m)^0x[0-9a-f]{16}\n`)
	cloneMark     = regexp.MustCompile(` \[clone [^]]*\]|\.cold\b`)
	discriminator = regexp.MustCompile(` \(discriminator \d+\)`)
	noLine        = regexp.MustCompile(`(?m)^.*:[0?]$`)
	directory     = regexp.MustCompile(`(?m)^[^\s(]*/([^/\s]+:\d+)$`)
)

// normal removes what addr2line writes differently: suffixes of clones, the object file of unknown
// lines, and the spelling of directories.
func normal(answer string) string {
	answer = discriminator.ReplaceAllString(cloneMark.ReplaceAllString(answer, ""), "")
	return directory.ReplaceAllString(noLine.ReplaceAllString(answer, "?"), "$1")
}

// addr2line asks addr2line about addresses and returns one answer per address.
func addr2line(tb testing.TB, lib string, addresses []uint64) []string {
	tb.Helper()
	needTools(tb, "addr2line")
	var in strings.Builder
	for _, a := range addresses {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	cmd := exec.Command("addr2line", "-afiC", "-e", lib)
	cmd.Stdin, cmd.Stderr = strings.NewReader(in.String()), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatal(err)
	}
	answers := addressLine.Split(string(out), -1)[1:]
	if len(answers) != len(addresses) {
		tb.Fatalf("addr2line gave %d answers to %d addresses", len(answers), len(addresses))
	}
	return answers
}
