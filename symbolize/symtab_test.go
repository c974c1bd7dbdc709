// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// TestNamesWithoutDebugInfo looks up the functions of plain.c as more and more is stripped.
func TestNamesWithoutDebugInfo(t *testing.T) {
	original := compile(t, "plain.c", "-O2", "-fno-toplevel-reorder")
	for _, tt := range []struct {
		strip string
		want  string // name at the second byte of each function
	}{
		{"", "exported exported, local_helper local_helper, unsized_label unsized_label, unsized_function unsized_function"},
		{"--strip-debug", "exported exported, local_helper local_helper, unsized_label unsized_label, unsized_function unsized_function"},
		{"--strip-all", "exported exported, local_helper libplain.so+ADDRESS, unsized_label unsized_label, unsized_function unsized_function"},
		{"sections", "exported libplain.so+ADDRESS, local_helper libplain.so+ADDRESS, unsized_label libplain.so+ADDRESS, unsized_function libplain.so+ADDRESS"},
	} {
		lib := filepath.Join(t.TempDir(), "libplain.so")
		switch tt.strip {
		case "":
			lib = original
		case "sections":
			copyWithoutSections(t, original, lib)
		default:
			command(t, "strip", tt.strip, "-o", lib, original)
		}
		s, m := added(t, lib, Options{}, "")
		var got []string
		for _, name := range []string{"exported", "local_helper", "unsized_label", "unsized_function"} {
			address := symbolAddress(t, original, name) + 1
			frames := s.AppendFrames(nil, lib, m, address)
			if len(frames) != 1 || frames[0].Mapping != m || frames[0].Address != address {
				t.Fatalf("%s: frames %+v", name, frames)
			}
			if f := frames[0]; f.SystemName != "" && f.SystemName != f.Function {
				t.Errorf("C function %s has the mangled name %s", f.Function, f.SystemName)
			}
			got = append(got, name+" "+strings.ReplaceAll(frames[0].Function, fmt.Sprintf("%#x", address), "ADDRESS"))
		}
		if got := strings.Join(got, ", "); got != tt.want {
			t.Errorf("strip %q:\ngot  %s\nwant %s", tt.strip, got, tt.want)
		}
	}
}

// copyWithoutSections clears e_shoff, e_shnum and e_shstrndx.
func copyWithoutSections(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	clear(data[0x28:0x30])
	clear(data[0x3c:0x40])
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDemangledNames checks readable names and unchanged system names.
func TestDemangledNames(t *testing.T) {
	for symbol, want := range map[string]string{
		"_ZN6tensor6BufferIfE4growEm":                      "tensor::Buffer<float>::grow(unsigned long)",
		"_ZN6tensor2Op3runEi.cold":                         "tensor::Op::run(int)",
		"train.part.0.cold":                                "train",
		"cudaMalloc":                                       "cudaMalloc",
		"_RNvCs1234_7mycrate3foo":                          "mycrate::foo",
		"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE": "core::fmt::Write::write_fmt",
		"_Z" + strings.Repeat("x", 9000):                   "_Z" + strings.Repeat("x", untrusted.MaxName-2-len("…")) + "…",
		"\x1b[2Jevil":                                      "[2Jevil",
	} {
		if got := readable(symbol); got != want {
			t.Errorf("%.60s:\ngot  %.200s\nwant %.200s", symbol, got, want)
		}
	}
	if got := unversioned("cudaMalloc@@libcudart.so.12"); got != "cudaMalloc" {
		t.Errorf("version stays: %s", got)
	}
}
