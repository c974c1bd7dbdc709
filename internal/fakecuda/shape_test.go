// SPDX-License-Identifier: Apache-2.0

package fakecuda

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ianlancetaylor/demangle"
)

func openELF(t *testing.T, path string) *elf.File {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func code(t *testing.T, f *elf.File, s elf.Symbol, n int) []byte {
	t.Helper()
	section := f.Sections[s.Section]
	b := make([]byte, n)
	if _, err := section.ReadAt(b, int64(s.Value-section.Addr)); err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	return b
}

func exports(t *testing.T, f *elf.File) map[string]elf.Symbol {
	t.Helper()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]elf.Symbol{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			m[s.Name] = s
		}
	}
	return m
}

// called lists the functions of the runtime ("cuda") or the driver ("cu") that calls_c can call.
func called(t *testing.T, prefix string) []string {
	t.Helper()
	text, err := os.ReadFile("../../testdata/programs/calls.h")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`FUNCTION\((`+prefix+`[A-Z]\w*), "`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	if len(names) < 40 {
		t.Fatalf("only %d functions %s in calls.h", len(names), prefix)
	}
	return names
}

func TestFakeCUDADriverStubsHaveTheRealShape(t *testing.T) {
	f := openELF(t, Build(t).Lib("libcuda.so.1"))
	functions := exports(t, f)
	for _, name := range append(called(t, "cu"), "cuGetProcAddress_v2") {
		if _, ok := functions[name]; !ok {
			t.Errorf("%s is not exported", name)
		}
	}
	for name, s := range functions {
		if s.Version != "" {
			t.Errorf("%s has version %s, want none", name, s.Version)
		}
		if f.Machine != elf.EM_X86_64 {
			continue
		}
		// cmpl $0x321cba00,rel32(%rip); je rel8; jmp *rel32(%rip)
		b := code(t, f, s, 18)
		if !bytes.Equal(b[:2], []byte{0x81, 0x3d}) || !bytes.Equal(b[6:11], []byte{0x00, 0xba, 0x1c, 0x32, 0x74}) || !bytes.Equal(b[12:14], []byte{0xff, 0x25}) {
			t.Errorf("%s begins with % x", name, b)
		}
	}
	if f.Section(".symtab") != nil || f.Section(".eh_frame") == nil {
		t.Error("libcuda must be stripped and have unwind tables")
	}
}

// As the driver of CUDA 12.9 does.
func TestFakeCUDADriverFunctionsBeginWithAFrame(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the driver of arm64 has only stubs")
	}
	f, older := openELF(t, Build(t).Lib("driver_12.9/libcuda.so.1")), openELF(t, Build(t).Lib("libcuda.so.1"))
	functions := exports(t, f)
	if n := len(exports(t, older)); len(functions) != n {
		t.Errorf("%d functions, the older driver has %d", len(functions), n)
	}
	for name, s := range functions {
		// push %rbp; mov %rsp,%rbp; push %r12; sub $8,%rsp
		if b := code(t, f, s, 10); !bytes.Equal(b, []byte{0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x48, 0x83, 0xec, 0x08}) {
			t.Errorf("%s begins with % x", name, b)
		}
	}
}

func TestFakeCUDARuntimeLooksLikeTheRealOne(t *testing.T) {
	for path, version := range map[string]string{"libcudart.so.12": "libcudart.so.12", "libcudart.so.13": "libcudart.so.13", "wheel/libcudart-80664282.so.10.2": "libcudart.so.10.2"} {
		f := openELF(t, Build(t).Lib(path))
		needed, err := f.ImportedLibraries()
		if err != nil || slices.ContainsFunc(needed, func(n string) bool { return strings.Contains(n, "cuda") }) {
			t.Errorf("%s needs %v (%v), want no libcuda", path, needed, err)
		}
		functions := exports(t, f)
		for _, name := range called(t, "cuda") {
			s, ok := functions[name]
			if !ok || s.Version != version {
				t.Errorf("%s: %s@%s, want version %s", path, name, s.Version, version)
				continue
			}
			if b := code(t, f, s, 2); f.Machine == elf.EM_X86_64 && !bytes.Equal(b, []byte{0x41, 0x57}) {
				t.Errorf("%s: %s begins with % x, want push %%r15", path, name, b)
			}
		}
		if f.Section(".symtab") != nil {
			t.Errorf("%s is not stripped", path)
		}
	}
}

func TestFakeCUDAStaticProgramsShowNoRuntime(t *testing.T) {
	dir := Build(t)
	stripped := openELF(t, dir.Program("alloc_static"))
	if stripped.Section(".symtab") != nil {
		t.Error("alloc_static is not stripped")
	}
	whole := openELF(t, dir.Program("alloc_static_sym"))
	for _, f := range []*elf.File{stripped, whole} {
		dynamic, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range dynamic {
			if strings.HasPrefix(s.Name, "cuda") {
				t.Errorf("dynamic symbol %s", s.Name)
			}
		}
	}
	symbols, err := whole.Symbols()
	if err != nil || !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "cudaMalloc" && elf.ST_BIND(s.Info) == elf.STB_LOCAL }) {
		t.Errorf("alloc_static_sym has no local cudaMalloc (%v)", err)
	}
}

func TestFakeCUDAWheelRuntimeRuns(t *testing.T) {
	dir := Build(t)
	env := append(dir.Env(t, 1, 4<<30), "CUDART="+dir.Lib("wheel/libcudart-80664282.so.10.2"))
	cmd := exec.Command(dir.Program("bench.py"), "cudart", "5", "500")
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if got := usage(t, env)[0].GPUs[0].Total.Objects; got != 500 {
		t.Errorf("%d allocations, want 500", got)
	}
}

// expected is one line of the output of alloc_cpp and leak.py.
type expected struct {
	Kind        string
	Size, Count uint64
	Stack       []any
	Signatures  []string
	Inlined     []int
	Live        any
	Failed      int
}

func expectations(t *testing.T, out []byte) []expected {
	t.Helper()
	var rows []expected
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "{") {
			continue
		}
		var row expected
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		rows = append(rows, row)
	}
	return rows
}

func TestFakeCUDACPPProgramReportsCorrectly(t *testing.T) {
	dir := Build(t)
	env := dir.Env(t, 1, 4<<30)
	cmd := exec.Command(dir.Program("alloc_cpp"))
	cmd.Env, cmd.Stderr = env, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := openELF(t, dir.Program("alloc_cpp")).Symbols()
	if err != nil {
		t.Fatal(err)
	}
	names, signatures := map[string]bool{}, map[string]bool{}
	for _, s := range symbols {
		names[demangle.Filter(s.Name, demangle.NoParams)] = true
		signatures[demangle.Filter(s.Name)] = true
	}
	live := map[string]uint64{}
	for _, row := range expectations(t, out) {
		n, ok := row.Live.(float64)
		if !ok || len(row.Stack) != len(row.Signatures) {
			t.Fatalf("row %+v", row)
		}
		live[row.Kind] += uint64(n) * row.Size
		for i, name := range row.Stack {
			known := names[name.(string)] && signatures[row.Signatures[i]]
			if known == slices.Contains(row.Inlined, i) && name != "cudaMalloc" && name != "cudaMallocManaged" && name != "cudaHostAlloc" {
				t.Errorf("%v (%s): is a symbol: %v, reported as inlined: %v", name, row.Signatures[i], known, !known)
			}
		}
	}
	got := usage(t, env)[0]
	if live["device"] != got.GPUs[0].Device.Bytes || live["managed"] != got.GPUs[0].Managed.Bytes || live["pinned"] != got.Pinned.Bytes || live["device"] == 0 {
		t.Errorf("the program reports %v live, the driver %+v", live, got)
	}
}

func TestFakeCUDAPythonProgramsReportCorrectly(t *testing.T) {
	dir := Build(t)
	env := dir.Env(t, 1, 4<<30)
	cmd := exec.Command(dir.Program("leak.py"), "--stdin", "--threads", "2", "--steps", "4")
	cmd.Env, cmd.Stderr = env, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	live := map[string]uint64{}
	for _, row := range expectations(t, out) {
		if row.Live == true {
			live[row.Kind] += row.Size
		}
	}
	got := usage(t, env)[0]
	if live["device"] != got.GPUs[0].Device.Bytes || live["managed"] != got.GPUs[0].Managed.Bytes || live["pinned"] != got.Pinned.Bytes || live["device"] == 0 {
		t.Errorf("the program reports %v live, the driver %+v", live, got)
	}

	cmd = exec.Command(dir.Program("train.py"), "--steps", "12", "--step-ms", "1")
	cmd.Env = env
	text, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "steps 12\n") {
		t.Fatalf("train.py: %v %s", err, text)
	}
	if got := usage(t, env)[1]; got.GPUs[0].Total.Objects < 12*15 || got.PinnedTotal.Objects < 12 {
		t.Errorf("train.py allocated %+v and %+v pinned", got.GPUs[0].Total, got.PinnedTotal)
	}
}
