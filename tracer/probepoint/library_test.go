// SPDX-License-Identifier: Apache-2.0

package probepoint

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// source has functions of known shapes. cudaMalloc has two versions; the old one has another shape.
const source = `
#include <stddef.h>
#if defined(__x86_64__)
#define FUNC(name, code) \
  __asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name ",@function\n" #name ":\n" code "\n.size " #name ",.-" #name "\n")
FUNC(cuMemAlloc_v2, "cmpl $0x321cba00,state(%rip)\n je 1f\n jmp *table(%rip)\n1: mov $4,%eax\n ret");
FUNC(cudaMalloc_new, "push %r15\n pop %r15\n xor %eax,%eax\n ret");
FUNC(cudaMalloc_old, "sub $8,%rsp\n add $8,%rsp\n ret");
FUNC(cudaFree, "endbr64\n push %rbx\n pop %rbx\n ret");
FUNC(cuNoSize, "endbr64\n push %rbx\n pop %rbx\n ret");
__asm__(".size cuNoSize,0");
FUNC(cuOverlap, "endbr64\n.globl cuInside\n.type cuInside,@function\n cuInside: push %rbx\n pop %rbx\n ret\n.size cuInside,.-cuInside");
#endif
__attribute__((visibility("hidden"))) int state;
__attribute__((visibility("hidden"))) int (*table)(void);
int cuVariable;
int cudaUndefined(void);
int use(void) { return cudaUndefined(); }
static int resolved(void) { return 0; }
static void *resolve(void) { return resolved; }
int cuIndirect(void) __attribute__((ifunc("resolve")));
#ifdef VERSIONS
__asm__(".symver cudaMalloc_old,cudaMalloc@libcudart.so.11.0");
__asm__(".symver cudaMalloc_new,cudaMalloc@@libcudart.so.12");
#endif
#ifdef MAIN
int cudaUndefined(void) { return 1; }
__attribute__((used)) static int cudaMallocHost(void) { return 7; }
int main(void) { return use(); }
#endif
`

func build(t testing.TB, name string, flags ...string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the source is x86-64")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "s.c"), []byte(source))
	write(t, filepath.Join(dir, "v"), []byte("libcudart.so.11.0 { global: *; };\nlibcudart.so.12 { global: cudaMalloc; } libcudart.so.11.0;\n"))
	out := filepath.Join(dir, name)
	cmd := exec.Command(gcc, append([]string{"-O2", "-o", out, "s.c"}, flags...)...)
	cmd.Dir = dir
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, msg)
	}
	return out
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

var asked = []string{
	"cuMemAlloc_v2", "cudaMalloc", "cudaFree", "cuNoSize", "cuOverlap", "cuInside",
	"cuVariable", "cudaUndefined", "cuIndirect", "cuMissing", "cudaMallocHost", "cudaFree",
}

func functions(t testing.TB, path string) map[string]Function {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Function{}
	for _, fn := range l.Functions(asked) {
		if _, ok := byName[fn.Name]; ok {
			t.Errorf("%s twice", fn.Name)
		}
		byName[fn.Name] = fn
	}
	return byName
}

func TestFunctionsOfALibrary(t *testing.T) {
	gnu := build(t, "gnu.so", "-shared", "-fPIC", "-DVERSIONS", "-Wl,--version-script=v", "-Wl,--hash-style=gnu")
	sysv := build(t, "sysv.so", "-shared", "-fPIC", "-DVERSIONS", "-Wl,--version-script=v", "-Wl,--hash-style=sysv")
	bare := filepath.Join(t.TempDir(), "bare.so")
	b, err := os.ReadFile(gnu)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[0x28:0x30]) // e_shoff
	clear(b[0x3a:0x40]) // e_shentsize, e_shnum, e_shstrndx
	write(t, bare, b)
	for _, path := range []string{gnu, sysv, bare} {
		t.Run(filepath.Base(path), func(t *testing.T) { checkLibrary(t, path) })
	}
}

func checkLibrary(t *testing.T, path string) {
	got := functions(t, path)
	for _, want := range []struct {
		name  string
		probe uint64
		shape string
	}{
		{"cuMemAlloc_v2", 10, "cmpl+je"},
		{"cudaMalloc", 0, "push"}, // the old version begins with sub
		{"cudaFree", 4, "endbr64+push"},
		{"cuNoSize", 0, singleStep},
		{"cuOverlap", 0, singleStep},
		{"cuInside", 0, "push"},
	} {
		f, ok := got[want.name]
		if !ok || f.Probe != f.Offset+want.probe || f.Shape != want.shape || f.Emulated != (want.shape != singleStep) {
			t.Errorf("%s: %+v, want probe at +%d, %s", want.name, f, want.probe, want.shape)
		}
		checkOffset(t, path, f)
	}
	for _, name := range []string{"cuVariable", "cudaUndefined", "cuIndirect", "cuMissing"} {
		if f, ok := got[name]; ok {
			t.Errorf("%s found: %+v", name, f)
		}
	}
}

// checkOffset compares the code at the file offset with the code at the address.
func checkOffset(t *testing.T, path string, f Function) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.NewFile(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && f.Symbol >= p.Vaddr && f.Symbol < p.Vaddr+p.Filesz {
			if want := p.Off + f.Symbol - p.Vaddr; f.Offset != want {
				t.Errorf("%s: offset %#x, want %#x", f.Name, f.Offset, want)
			}
			return
		}
	}
	t.Errorf("%s: %#x is not code", f.Name, f.Symbol)
}

func TestFunctionsOfExecutables(t *testing.T) {
	for name, flags := range map[string][]string{
		"pie":        {"-DMAIN", "-pie", "-fPIE"},
		"static":     {"-DMAIN", "-static"},
		"static-pie": {"-DMAIN", "-static-pie", "-fPIE"},
		"no-pie":     {"-DMAIN", "-no-pie"},
	} {
		t.Run(name, func(t *testing.T) {
			path := build(t, name, flags...)
			got := functions(t, path)
			for _, name := range []string{"cudaFree", "cuMemAlloc_v2", "cudaMallocHost"} {
				f, ok := got[name]
				if !ok {
					t.Errorf("%s not found", name)
					continue
				}
				checkOffset(t, path, f)
			}
			if f := got["cudaFree"]; f.Probe != f.Offset+4 {
				t.Errorf("cudaFree: %+v", f)
			}
			if err := exec.Command("strip", path).Run(); err != nil {
				t.Skip(err)
			}
			if got := functions(t, path); len(got) != 0 {
				t.Errorf("stripped, but found %v", got)
			}
		})
	}
}

func TestFunctionsOfTheFakeCUDA(t *testing.T) {
	dir := filepath.Join("..", "..", "testdata", "fakecuda")
	if _, err := os.Stat(filepath.Join(dir, "build.sh")); err != nil || runtime.GOARCH != "amd64" {
		t.Skip("no testdata/fakecuda")
	}
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip(err)
	}
	out := t.TempDir()
	if msg, err := exec.Command("bash", filepath.Join(dir, "build.sh"), out).CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, msg)
	}
	for _, c := range []struct{ library, function, shape string }{
		{"libcuda.so.1", "cuMemAlloc_v2", "cmpl+je"},
		{"libcudart.so.12", "cudaMalloc", "push"},
	} {
		f, err := os.Open(filepath.Join(out, c.library))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		l, err := Open(f)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Functions([]string{c.function}); len(got) != 1 || !got[0].Emulated || got[0].Shape != c.shape {
			t.Errorf("%s: got %+v, want shape %s", c.library, got, c.shape)
		}
	}
}

func TestOpenRejectsOtherFiles(t *testing.T) {
	good, err := os.ReadFile(build(t, "good.so", "-shared", "-fPIC"))
	if err != nil {
		t.Fatal(err)
	}
	with := func(at int, b ...byte) []byte {
		return append(append(bytes.Clone(good[:at]), b...), good[at+len(b):]...)
	}
	for name, b := range map[string][]byte{
		"empty":             {},
		"text":              bytes.Repeat([]byte("no ELF\n"), 100),
		"short":             good[:40],
		"header only":       good[:64],
		"32-bit":            with(elf.EI_CLASS, byte(elf.ELFCLASS32)),
		"big-endian":        with(elf.EI_DATA, byte(elf.ELFDATA2MSB)),
		"relocatable":       with(16, byte(elf.ET_REL)),
		"other machine":     with(18, byte(elf.EM_AARCH64)),
		"no segments":       with(56, 0, 0),
		"too many segments": with(56, 0xff, 0xff),
		"segments far away": with(32, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			write(t, path, b)
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := Open(f); !errors.Is(err, ErrNotELF) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestOpenDoesNotReadFromAFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Open(f); !errors.Is(err, ErrNotELF) {
		t.Errorf("got %v", err)
	}
}

func TestTruncatedLibraryHasNoFunctionsBeyondItsEnd(t *testing.T) {
	path := build(t, "cut.so", "-shared", "-fPIC")
	if err := os.Truncate(path, 0x1000); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Functions(asked); len(got) != 0 {
		t.Errorf("found %v", got)
	}
}

// countingReader counts the bytes read.
type countingReader struct {
	r     io.ReaderAt
	bytes int
}

func (c *countingReader) ReadAt(b []byte, at int64) (int, error) {
	n, err := c.r.ReadAt(b, at)
	c.bytes += n
	return n, err
}

func TestLargeLibraryIsNotRead(t *testing.T) {
	path := build(t, "large.so", "-shared", "-fPIC")
	const size = 500 << 20
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	begin := time.Now()
	counting := &countingReader{r: f}
	l, err := open(counting, size, elf.EM_X86_64)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Functions(asked); len(got) == 0 {
		t.Error("found nothing")
	}
	t.Logf("%d bytes read in %v", counting.bytes, time.Since(begin))
	if counting.bytes > 64<<10 {
		t.Errorf("%d bytes read", counting.bytes)
	}
}

// cuReader is a file that goes on with "cucucu…".
type cuReader struct{ file []byte }

func (c cuReader) ReadAt(b []byte, at int64) (int, error) {
	for i := range b {
		b[i] = "cu"[i%2]
	}
	if at < int64(len(c.file)) {
		copy(b, c.file[at:])
	}
	return len(b), nil
}

// A library without a GNU hash table claims names of 4 GiB, all of which begin like CUDA's.
func TestLongTablesOfNamesAreNotRead(t *testing.T) {
	path := build(t, "names.so", "-shared", "-fPIC", "-Wl,--hash-style=sysv")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := open(bytes.NewReader(data), uint64(len(data)), elf.EM_X86_64)
	if err != nil {
		t.Fatal(err)
	}
	entry := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(elf.DT_STRSZ)), f.file.Dynamic[elf.DT_STRSZ])
	at := bytes.Index(data, entry)
	if at < 0 {
		t.Fatal("no DT_STRSZ")
	}
	binary.LittleEndian.PutUint64(data[at+8:], 1<<32-1)
	counting := &countingReader{r: cuReader{data}}
	l, err := open(counting, 8<<30, elf.EM_X86_64)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Functions([]string{"cuMemAlloc_v2", "cuOverlap"}); len(got) != 2 {
		t.Errorf("found %v", got)
	}
	if counting.bytes > 64<<20 {
		t.Errorf("%d bytes read", counting.bytes)
	}
}

func FuzzOpen(f *testing.F) {
	if runtime.GOARCH == "amd64" {
		for _, flags := range [][]string{
			{"-shared", "-fPIC", "-Wl,--hash-style=gnu", "-s"}, {"-shared", "-fPIC", "-Wl,--hash-style=sysv"}, {"-DMAIN", "-no-pie"},
		} {
			b, err := os.ReadFile(build(f, "seed", flags...))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
			wide := bytes.Clone(b)
			binary.LittleEndian.PutUint16(wide[60:], 0) // section count in section 0
			f.Add(wide)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := open(bytes.NewReader(b), uint64(len(b)), elf.EM_X86_64)
		if err != nil {
			return
		}
		for _, fn := range append(l.Functions(asked), l.Imports(asked)...) {
			if fn.Offset >= uint64(len(b)) || fn.Probe >= uint64(len(b)) || fn.Probe < fn.Offset {
				t.Fatalf("outside the file: %+v", fn)
			}
		}
	})
}
