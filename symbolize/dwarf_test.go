// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// TestFramesEqualAddr2line compares all addresses of a library with addr2line, in every format of
// debug information that compilers write.
func TestFramesEqualAddr2line(t *testing.T) {
	for _, flags := range []string{
		"-O2 -gdwarf-2", "-O2 -gdwarf-3", "-O2 -gdwarf-4", "-O2 -gdwarf-5", "-O0 -g", "-O2 -g1",
		"-O2 -g -gz=zlib", "-O2 -gdwarf-4 -gz=zlib-gnu", "-O3 -g -ffunction-sections", "-O2 -gdwarf-4 -flto",
	} {
		t.Run(strings.ReplaceAll(flags, " ", ""), func(t *testing.T) {
			lib := compile(t, "inline.cc", strings.Fields(flags)...)
			compare(t, lib, lib)
		})
	}
}

func TestPlainCEqualsAddr2line(t *testing.T) {
	lib := compile(t, "plain.c", "-O2", "-g")
	compare(t, lib, lib)
}

// TestFramesEqualPlainFormat compares formats that addr2line itself misreads with the same library
// in a format that it reads.
func TestFramesEqualPlainFormat(t *testing.T) {
	for flags, plain := range map[string]string{
		"-gdwarf-4 -gdwarf64":             "-gdwarf-4",
		"-gdwarf-5 -gdwarf64":             "-gdwarf-5",
		"-gdwarf-5 -fdebug-types-section": "-gdwarf-5",
	} {
		compare(t, compile(t, "inline.cc", strings.Fields(flags+" -O2")...), compile(t, "inline.cc", "-O2", plain))
	}
}

// TestClang covers features that gcc does not use: indexed strings, addresses and range lists.
func TestClang(t *testing.T) {
	needTools(t, "clang++")
	var reference string
	for _, version := range []string{"-gdwarf-4", "-gdwarf-5"} { // addr2line 2.40 misses names in version 5
		lib := filepath.Join(t.TempDir(), "libclang.so")
		command(t, "clang++", "-shared", "-fPIC", "-O2", version, "-o", lib, "testdata/inline.cc")
		if reference == "" {
			reference = lib
		}
		compare(t, lib, reference)
	}
}

func TestCompressedDebugInfo(t *testing.T) {
	for _, format := range []string{"zlib-gabi", "zlib-gnu", "zstd"} {
		reference := compile(t, "inline.cc", "-O2", "-g")
		lib := filepath.Join(t.TempDir(), "lib.so")
		if out, err := exec.Command("objcopy", "--compress-debug-sections="+format, reference, lib).CombinedOutput(); err != nil {
			t.Logf("objcopy cannot write %s: %s", format, out)
			continue
		}
		compare(t, lib, reference)
	}
}

func compare(t *testing.T, lib, reference string) {
	t.Helper()
	s, m := added(t, lib, Options{}, "")
	addresses := codeAddresses(t, reference)
	lines, inlined := 0, 0
	for i, want := range addr2line(t, reference, addresses) {
		frames := s.AppendFrames(nil, lib, m, addresses[i])
		if got, want := normal(describe(frames)), normal(want); got != want {
			t.Fatalf("at %#x got\n%swant\n%s", addresses[i], got, want)
		}
		if frames[0].Line > 0 {
			lines++
		}
		inlined += len(frames) - 1
	}
	t.Logf("%d addresses, %d with a line, %d inlined calls", len(addresses), lines, inlined)
	if lines == 0 {
		t.Errorf("only %d of %d addresses have a line", lines, len(addresses))
	}
	if w := s.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
}

// TestInlinedFrames checks one full stack, including what addr2line does not show.
func TestInlinedFrames(t *testing.T) {
	lib := compile(t, "inline.cc", "-O2", "-g")
	s, m := added(t, lib, Options{}, "")
	found := false
	for _, address := range codeAddresses(t, lib) {
		frames := s.AppendFrames(nil, lib, m, address)
		if len(frames) != 3 || frames[0].Function != "tensor::Buffer<float>::grow(unsigned long)" {
			continue
		}
		found = true
		for i, want := range []callstack.Frame{
			{Function: "tensor::Buffer<float>::grow(unsigned long)", SystemName: "_ZN6tensor6BufferIfE4growEm", StartLine: 13, Inlined: true},
			{Function: "tensor::Buffer<float>::Buffer(unsigned long)", SystemName: "_ZN6tensor6BufferIfEC4Em", StartLine: 12, Inlined: true, Line: 12},
			{Function: "tensor::Op::run(int)", SystemName: "_ZN6tensor2Op3runEi", StartLine: 31, Line: 32},
		} {
			got := frames[i]
			if filepath.Base(got.File) != "inline.cc" || got.Mapping != m || got.Address != address {
				t.Errorf("frame %d: %+v", i, got)
			}
			if got.File, got.Mapping, got.Address = "", nil, 0; want.Line == 0 {
				got.Line = 0
			}
			if got != want {
				t.Errorf("frame %d:\ngot  %+v\nwant %+v", i, got, want)
			}
		}
	}
	if !found {
		t.Error("no address is in Buffer<float>::grow inlined into its constructor inlined into Op::run")
	}
}
