// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"cmp"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/libraries"
)

// These tests read NVIDIA's libraries, which scripts/check-real-libs.sh fetches. They show what a
// new version of CUDA changes for the probe table.

// came maps the newest functions to the major version of CUDA that added them. They may be missing
// if all libraries are older; at least one library must have every other row.
var came = map[string]int{
	"cuMulticastCreate": 535, // 530, of which there was no package
	"cuCtxCreate_v4":    555,

	"cuMemGetDefaultMemPool": 580,
	"cuMemGetMemPool":        580,
	"cuMemSetMemPool":        580,

	"cudaMemGetDefaultMemPool": 13,
	"cudaMemGetMemPool":        13,
	"cudaMemSetMemPool":        13,
}

// stubsSince is the first driver whose exported functions are stubs.
const stubsSince = 470

// realLibrary is one of NVIDIA's libraries.
type realLibrary struct {
	path, name string
	layer      cudaapi.Layer
	version    []int // of "libcuda.so.550.163.01"
	rows       Rows
	exports    map[string]elf.Symbol
}

var versionOf = regexp.MustCompile(`\.so\.([0-9]+(?:\.[0-9]+)+)$`)

// realFolder returns the folder with the libraries, or skips the test.
func realFolder(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("VRAMPROF_REAL_LIBS")
	if dir == "" {
		t.Skip("VRAMPROF_REAL_LIBS names no folder with NVIDIA's libraries (scripts/check-real-libs.sh)")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skip(err)
	}
	return dir
}

// realFiles lists the regular files below this folder whose names match.
func realFiles(t *testing.T, match func(name string) bool) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(realFolder(t), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && match(d.Name()) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// realLibraries opens the libraries of a layer, the oldest version first.
func realLibraries(t *testing.T, layer cudaapi.Layer) (list []*realLibrary) {
	t.Helper()
	paths := realFiles(t, func(name string) bool {
		l, ok := libraries.LayerOf(name)
		return ok && l == layer && versionOf.MatchString(name)
	})
	for _, path := range paths {
		l := &realLibrary{path: path, name: filepath.Base(path), layer: layer}
		for _, part := range strings.Split(versionOf.FindStringSubmatch(l.name)[1], ".") {
			n, _ := strconv.Atoi(part)
			l.version = append(l.version, n)
		}
		l.open(t)
		list = append(list, l)
	}
	if len(list) == 0 {
		t.Skipf("no library of layer %d in %s", layer, realFolder(t))
	}
	slices.SortFunc(list, func(a, b *realLibrary) int {
		return cmp.Or(slices.Compare(a.version, b.version), cmp.Compare(a.path, b.path))
	})
	return list
}

func (l *realLibrary) open(t *testing.T) {
	t.Helper()
	f, err := os.Open(l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if l.rows, err = Resolve(f, l.layer); err != nil {
		t.Fatalf("%s: %v", l.name, err)
	}
	file, err := elf.NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatalf("%s: %v", l.name, err)
	}
	l.exports = map[string]elf.Symbol{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			l.exports[s.Name] = s
		}
	}
}

func eachLayer(t *testing.T, test func(t *testing.T, list []*realLibrary)) {
	realFolder(t)
	for layer, name := range []string{cudaapi.Runtime: "runtime", cudaapi.Driver: "driver"} {
		t.Run(name, func(t *testing.T) { test(t, realLibraries(t, cudaapi.Layer(layer))) })
	}
}

func TestRealLibrariesHaveEveryRow(t *testing.T) {
	eachLayer(t, func(t *testing.T, list []*realLibrary) {
		since := map[string]*realLibrary{}
		for _, l := range list {
			t.Logf("%-24s %3d rows of %3d, %3d emulated: %s", l.name, len(l.rows.Found),
				len(l.rows.Found)+len(l.rows.Missing), l.emulated(), l.shapes())
			for _, at := range l.rows.Found {
				if since[at.Name] == nil {
					since[at.Name] = l
				}
			}
		}
		first := map[*realLibrary][]string{}
		for _, row := range cudaapi.Table {
			l := since[row.Name]
			switch {
			case row.Layer != list[0].layer:
			case l != nil:
				first[l] = append(first[l], row.Name)
			case came[row.Name] > list[len(list)-1].version[0]:
				t.Logf("%s came in %d only", row.Name, came[row.Name])
			default:
				t.Errorf("no library has %s", row.Name)
			}
		}
		for _, l := range list[1:] {
			if len(first[l]) > 0 {
				t.Logf("since %s: %s", l.name, strings.Join(first[l], ", "))
			}
			for _, name := range l.rows.Missing {
				if s := since[name]; s != nil && slices.Compare(s.version, l.version) < 0 {
					t.Errorf("%s has %s, but %s lacks it", s.name, name, l.name)
				}
			}
		}
	})
}

func (l *realLibrary) emulated() (n int) {
	for _, at := range l.rows.Found {
		if at.Emulated {
			n++
		}
	}
	return n
}

// shapes counts the places of the probes: "98 × cmpl+je at +10".
func (l *realLibrary) shapes() string {
	count := map[string]int{}
	for _, at := range l.rows.Found {
		count[fmt.Sprintf("%s at +%d", at.Shape, at.Probe-at.Offset)]++
	}
	var list []string
	for shape, n := range count {
		list = append(list, fmt.Sprintf("%d × %s", n, shape))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// A function with a variant for the stream of the thread has a second name in the library, so it
// needs a second row.
func TestRealTwinsHaveRows(t *testing.T) {
	rows := map[string]bool{}
	for _, row := range cudaapi.Table {
		rows[row.Name] = true
	}
	eachLayer(t, func(t *testing.T, list []*realLibrary) {
		for _, l := range list {
			for _, at := range l.rows.Found {
				for _, suffix := range []string{"_ptsz", "_ptds"} {
					if twin := at.Name + suffix; l.exports[twin].Name != "" && !rows[twin] {
						t.Errorf("%s exports %s, which has no row", l.name, twin)
					}
				}
				asynchronous := strings.HasSuffix(at.Name, "Async")
				if asynchronous && l.exports[at.Name+"_ptsz"].Name == "" {
					t.Errorf("%s has %s, but not its twin", l.name, at.Name)
				}
			}
		}
	})
}

// Two rows must not have the same probe: its event could not show which function was called.
func TestRealRowsShareNoAddress(t *testing.T) {
	eachLayer(t, func(t *testing.T, list []*realLibrary) {
		for _, l := range list {
			at := map[uint64]string{}
			for _, f := range l.rows.Found {
				if other := at[f.Probe]; other != "" {
					t.Errorf("%s: %s and %s have the same address", l.name, other, f.Name)
				}
				at[f.Probe] = f.Name
			}
		}
	})
}

func TestRealLibrariesAreCheapToProbe(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("single-stepping is cheap here")
	}
	eachLayer(t, func(t *testing.T, list []*realLibrary) {
		for _, l := range list {
			if l.layer == cudaapi.Driver && l.version[0] < stubsSince {
				continue
			}
			shape, offset := "push", uint64(0)
			if l.layer == cudaapi.Driver {
				shape, offset = "cmpl+je", 10
			}
			for _, at := range l.rows.Found {
				if !at.Emulated || at.Shape != shape || at.Probe-at.Offset != offset {
					t.Errorf("%s: %s is %q, the probe at +%d", l.name, at.Name, at.Shape, at.Probe-at.Offset)
				}
			}
		}
	})
}

func TestRealRuntimesVersionTheirSymbols(t *testing.T) {
	eachLayer(t, func(t *testing.T, list []*realLibrary) {
		for _, l := range list {
			for _, at := range l.rows.Found {
				s := l.exports[at.Name]
				if versioned := strings.HasPrefix(s.Version, "libcudart.so."); versioned != (l.layer == cudaapi.Runtime) {
					t.Errorf("%s: %s has version %q", l.name, at.Name, s.Version)
				}
				if s.Value != at.Symbol {
					t.Errorf("%s: %s is at %#x, was found at %#x", l.name, at.Name, s.Value, at.Symbol)
				}
			}
		}
	})
}

func TestRealFunctionsAreNamed(t *testing.T) {
	eachLayer(t, func(t *testing.T, list []*realLibrary) {
		for _, l := range list {
			names := namesOf(t, l.path)
			for _, at := range l.rows.Found {
				for _, address := range []uint64{at.Symbol, at.Symbol + at.Probe - at.Offset} {
					if got := names(address); got != at.Name {
						t.Errorf("%s: %#x is %s, want %s", l.name, address, got, at.Name)
					}
				}
			}
		}
	})
}

// namesOf symbolizes addresses of a file.
func namesOf(t *testing.T, path string) func(uint64) string {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s := symbolize.New(symbolize.Options{})
	t.Cleanup(func() { s.Close() })
	m := &callstack.Mapping{Path: path}
	s.AddFile(path, m, f, "")
	return func(address uint64) string {
		for _, w := range s.Warnings() {
			t.Logf("%s: %s", filepath.Base(path), w)
		}
		return s.AppendFrames(nil, path, m, address)[0].Function
	}
}

func TestRealTorchFunctionsAreDemangled(t *testing.T) {
	realFolder(t)
	for _, c := range []struct{ library, prefix, want string }{
		{"libc10.so", "_ZN3c1027reportMemoryUsageToProfilerEPv", "c10::reportMemoryUsageToProfiler(void*, "},
		{"libc10_cuda.so", "_ZN3c104cuda14current_deviceEv", "c10::cuda::current_device()"},
		{"libtorch_cpu.so", "_ZN2at4_ops13empty_strided4call", "at::_ops::empty_strided::call(c10::ArrayRef<"},
		{"libtorch_cuda.so", "_ZN2at4cuda4blas", "at::cuda::blas::"},
		{"libtorch_python.so", "_Z18THCPModule_methodsv", "THCPModule_methods()"},
	} {
		t.Run(c.library, func(t *testing.T) {
			paths := realFiles(t, func(name string) bool { return strings.HasPrefix(name, c.library) })
			if len(paths) == 0 {
				t.Skip("there is no " + c.library)
			}
			for _, path := range paths {
				n := checkDemangled(t, path, c.prefix, c.want)
				t.Logf("%s: %d functions begin with %s", filepath.Base(path), n, c.prefix)
				if n == 0 {
					t.Errorf("%s exports no %s", path, c.prefix)
				}
			}
		})
	}
}

// checkDemangled looks up an address inside each exported function whose name begins with prefix.
// It returns the number of these functions.
func checkDemangled(t *testing.T, path, prefix, want string) (seen int) {
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var names func(uint64) string
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF || elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 || !strings.HasPrefix(s.Name, prefix) {
			continue
		}
		if names == nil {
			names = namesOf(t, path)
		}
		seen++
		if got := names(s.Value + s.Size/2); !strings.Contains(got, want) {
			t.Errorf("%s: %s is named %q, want %q", filepath.Base(path), s.Name, got, want)
		}
	}
	return seen
}
