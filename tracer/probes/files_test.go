// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/patches"
	"github.com/vramprof/vramprof/tracer/probepoint"
)

// attaches imitates a Prober: it attaches nothing, and fails for empty files.
type attaches struct{ done []string }

func (a *attaches) Attach(f *os.File, l libraries.Mapped, pid uint32) (*Set, error) {
	if st, err := f.Stat(); err != nil || st.Size() == 0 {
		return nil, errors.Join(err, errors.New("it is empty"))
	}
	name := l.Name
	if pid != 0 {
		name = fmt.Sprint(name, " in ", pid)
	}
	a.done = append(a.done, name)
	return &Set{functions: []probepoint.Function{{Name: "of " + l.Name}}}, nil
}

func (a *attaches) AttachBrief(_ *os.File, layer cudaapi.Layer, pid uint32) (*Set, error) {
	a.done = append(a.done, fmt.Sprint("brief ", layer, " in ", pid))
	return &Set{}, nil
}

func (a *attaches) CanAttachToOne() bool { return true }

func (a *attaches) AttachLoader(_ *os.File, pid uint32) (*Set, error) {
	a.done = append(a.done, fmt.Sprint("loader in ", pid))
	return &Set{}, nil
}

func (a *attaches) loaderFunctions(*os.File) ([]probepoint.Function, error) {
	return []probepoint.Function{{Name: "_dl_debug_state"}}, nil
}

func (a *attaches) functions(*os.File, cudaapi.Layer) ([]probepoint.Function, error) {
	return []probepoint.Function{{Name: "cuMemAlloc_v2"}}, nil
}

func (a *attaches) name(*Set, func() (uint64, bool)) bool { return true }

func (a *attaches) review(_ *os.File, set *Set, _ func() (uint64, bool), _ Pace, keep bool) error {
	a.done = append(a.done, fmt.Sprintf("review %s, keep %v", set.functions[0].Name, keep))
	return nil
}

// told collects what Files report.
type told struct {
	attaches
	warnings, probed []string
}

// files returns Files for which all processes but 9 are traced.
func (x *told) files(noTensors bool) *Files {
	return newFiles(&x.attaches, Options{
		NoTensors: noTensors,
		Traced:    func(pid uint32) bool { return pid != 9 },
		Owner:     func(uint32) uint32 { return 1 },
		Warn:      func(pid uint32, text string) { x.warnings = append(x.warnings, fmt.Sprint(pid, ": ", text)) },
		Probed:    func(l libraries.Mapped, rows int) { x.probed = append(x.probed, fmt.Sprint(l.Name, " ", rows)) },
	}, maxFiles)
}

// mapped creates a file and returns it as a mapping of a process.
func mapped(t *testing.T, pid uint32, layer cudaapi.Layer, name, content string) libraries.Mapped {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return libraries.Mapped{PID: pid, File: libraries.FileKey{Device: uint32(st.Dev), Inode: st.Ino}, Layer: layer, Name: name, Path: path}
}

func TestFilesAreProbedOnceEachFromPyTorchToTheDriver(t *testing.T) {
	var x told
	s := x.files(false)
	driver := mapped(t, 1, cudaapi.Driver, "libcuda.so.1", "x")
	again := driver
	again.PID = 2
	s.Probe([]libraries.Mapped{
		driver, again, mapped(t, 1, cudaapi.Runtime, "libcudart.so.12", "x"), mapped(t, 1, cudaapi.Torch, "libc10.so", "x"),
		mapped(t, 9, cudaapi.Driver, "libcuda.so.2", "x"), // not traced
	})
	s.Probe([]libraries.Mapped{again})
	if want := []string{"libc10.so", "libcudart.so.12", "libcuda.so.1"}; !slices.Equal(x.done, want) || len(x.warnings) > 0 || !s.HaveTensors() {
		t.Errorf("probed %q, want %q; %q", x.done, want, x.warnings)
	}
	if want := []string{"libc10.so 1", "libcudart.so.12 1", "libcuda.so.1 1"}; !slices.Equal(x.probed, want) {
		t.Errorf("told %q, want %q", x.probed, want)
	}
	s.Close()
	if len(s.Functions()) > 0 {
		t.Errorf("still probed: %q", s.Functions())
	}
}

func TestPyTorchIsLeftAloneWithoutTensors(t *testing.T) {
	var x told
	s := x.files(true)
	s.Probe([]libraries.Mapped{mapped(t, 1, cudaapi.Torch, "libc10.so", "x")})
	if len(x.done)+len(x.warnings) > 0 || s.HaveTensors() {
		t.Errorf("probed %q, told %q", x.done, x.warnings)
	}
}

func TestTheRuntimeKeepsItsProbesOnceADriverCouldNotBeProbed(t *testing.T) {
	var x told
	s := x.files(false)
	runtime := mapped(t, 7, cudaapi.Runtime, "libcudart.so.12", "x")
	other := mapped(t, 7, cudaapi.Runtime, "libcudart.so.11", "") // which changes nothing
	s.Probe([]libraries.Mapped{runtime, other, mapped(t, 7, cudaapi.Driver, "libcuda.so.1", "x")})
	x.done = nil
	s.Review()
	s.Probe([]libraries.Mapped{mapped(t, 8, cudaapi.Driver, "libcuda.so.1", "")})
	s.Review()
	x.done = slices.DeleteFunc(x.done, func(what string) bool { return !strings.Contains(what, "libcudart.so.12") })
	if want := []string{"review of libcudart.so.12, keep false", "review of libcudart.so.12, keep true"}; !slices.Equal(x.done, want) {
		t.Errorf("got %q, want %q", x.done, want)
	}
}

func TestAFileThatFailedIsTriedAgainOnlyWhenItHasChanged(t *testing.T) {
	var x told
	s := x.files(false)
	l := mapped(t, 7, cudaapi.Driver, "libcuda.so.1", "")
	s.Probe([]libraries.Mapped{l})
	s.Probe([]libraries.Mapped{l})
	if want := []string{"7: probe libcuda.so.1 of process 7: it is empty"}; !slices.Equal(x.warnings, want) {
		t.Fatalf("warnings %q, want %q", x.warnings, want)
	}
	if err := os.WriteFile(l.Path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Probe([]libraries.Mapped{l})
	if len(x.probed) != 1 {
		t.Errorf("probed %q after it has changed", x.probed)
	}
}

func TestAProcessHasALimitOfFiles(t *testing.T) {
	var x told
	s := x.files(false)
	for i := range maxFilesOfProcess + 1 {
		s.Probe([]libraries.Mapped{mapped(t, 7, cudaapi.Driver, fmt.Sprintf("libcuda-%d.so", i), "x")})
	}
	if len(x.done) != maxFilesOfProcess || len(x.warnings) != 1 || !strings.HasPrefix(x.warnings[0], "7: process 7 maps more ") {
		t.Errorf("%d files were probed, told %q", len(x.done), x.warnings)
	}
	s.Probe([]libraries.Mapped{mapped(t, 8, cudaapi.Driver, "libcuda.so.1", "x")})
	if len(x.done) != maxFilesOfProcess+1 {
		t.Error("another process's file is not probed")
	}
}

func TestFilesThatAreGoneAreNotCounted(t *testing.T) {
	var x told
	s := x.files(false)
	for i := range maxFilesOfProcess + 1 {
		s.Probe([]libraries.Mapped{{PID: 7, File: libraries.FileKey{Inode: uint64(i)}, Path: "/nowhere/libcuda.so.1"}})
	}
	if len(x.warnings) > 0 || s.places.Held(7) != 0 {
		t.Errorf("%d places are taken, told %q", s.places.Held(7), x.warnings)
	}
}

func TestProbesLeaveFilesThatNobodyCanMapAgain(t *testing.T) {
	var x told
	s := x.files(false)
	pid := uint32(os.Getppid()) // any process with a mount namespace
	stays := mapped(t, pid, cudaapi.Runtime, "libcudart.so.12", "x")
	deleted, still := mapped(t, pid, cudaapi.Driver, "libcuda.so.1", "x"), mapped(t, pid, cudaapi.Driver, "libcuda.so.2", "x")
	failed := mapped(t, pid, cudaapi.Driver, "libcuda.so.3", "")
	s.Probe([]libraries.Mapped{stays, deleted, still, failed})
	for _, l := range []libraries.Mapped{deleted, still} {
		if err := os.Remove(l.Path); err != nil {
			t.Fatal(err)
		}
	}
	s.Retire([]libraries.Mapped{still}, nil)
	for _, c := range []struct {
		l    libraries.Mapped
		kept bool
	}{{stays, true}, {deleted, false}, {still, true}, {failed, false}} {
		if kept := s.known[c.l.File] != nil; kept != c.kept {
			t.Errorf("%s: kept %v, want %v", c.l.Name, kept, c.kept)
		}
	}
	if n := s.places.Held(pid); n != 2 {
		t.Errorf("%d places are taken, want 2", n)
	}
}

// Each job of a cluster may have an environment of its own, which stays on the disk.
func TestOnlyTheLatestFilesThatNobodyMapsStayProbed(t *testing.T) {
	var x told
	s := x.files(false)
	parent := uint32(os.Getppid())
	var all []libraries.Mapped
	for i := range maxIdle + 3 {
		l := mapped(t, parent+uint32(i), cudaapi.Runtime, "libcudart.so.12", fmt.Sprint(i))
		l.PID = parent
		s.tried = map[uint32]int{} // of another process
		s.Probe([]libraries.Mapped{l})
		s.known[l.File].origin.namespace, _ = os.Readlink("/proc/self/ns/mnt")
		all = append(all, l)
		s.Retire([]libraries.Mapped{all[0], l}, nil)
	}
	s.Retire(all[:1], nil)
	if n := len(s.known); n != maxIdle+1 || s.known[all[0].File] == nil || s.known[all[1].File] != nil {
		t.Errorf("%d files are probed; that which is mapped: %v, the oldest other: %v", n, s.known[all[0].File] != nil, s.known[all[1].File] != nil)
	}
	if held := s.places.Held(parent); held != maxIdle+1 {
		t.Errorf("%d places are taken", held)
	}
}

func TestALoaderIsProbedOnce(t *testing.T) {
	var x told
	s := x.files(false)
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if s.HaveLoaders() {
		t.Error("a loader is probed before ProbeLoader")
	}
	if err := errors.Join(s.ProbeLoader(f, 7), s.ProbeLoader(f, 7)); err != nil || !s.HaveLoaders() || len(s.loaders) != 1 {
		t.Errorf("%d loaders, %v", len(s.loaders), err)
	}
}

// TestALoaderIsProbedOnlyWhereItsCodeIsTheFiles imitates a process that has changed the code.
func TestALoaderIsProbedOnlyWhereItsCodeIsTheFiles(t *testing.T) {
	for _, c := range []struct {
		name    string
		patched []patches.Patch
		want    []string
		warning string
		err     string
	}{
		{"nobody", nil, []string{"loader in 0"}, "", ""},
		{"a process", []patches.Patch{{PID: 1 << 30, Function: "_dl_debug_state"}}, []string{"loader in 7"}, "process 1073741824 () overwrote _dl_debug_state in its memory", ""},
		{"a debugger's breakpoint", []patches.Patch{{PID: 1 << 30, Function: "_dl_debug_state", Trap: true}}, nil, "", "process 1073741824 () overwrote _dl_debug_state"},
		{"a process that cannot be compared", []patches.Patch{{PID: 1 << 30, Err: deadline.ErrStuck}}, []string{"loader in 7"}, "does not let its memory be compared", ""},
	} {
		var x told
		s := x.files(false)
		a := &attaches{}
		s.prober = a
		s.compare = func(_ *patches.Code, _ string, mapped []libraries.Mapped) []patches.Patch {
			if !slices.ContainsFunc(mapped, libraries.Mapped.IsOwn) {
				t.Error("this process maps the file, and is not among those to compare")
			}
			return c.patched
		}
		f, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		err = s.ProbeLoader(f, 7)
		f.Close()
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || !slices.Equal(a.done, c.want) {
			t.Errorf("%s: probed %q, %v", c.name, a.done, err)
		}
		if (len(x.warnings) > 0) != (c.warning != "") || c.warning != "" && !strings.Contains(x.warnings[0], c.warning) {
			t.Errorf("%s: told %q", c.name, x.warnings)
		}
	}
}

// Its process may have moved the mapping, or stall who opens it.
func TestTheProcessOfAFileThatCannotBeOpenedIsScannedAgain(t *testing.T) {
	var x told
	s := x.files(false)
	var again []uint32
	s.options.Again = func(pid uint32) { again = append(again, pid) }
	running := uint32(os.Getppid())
	for _, pid := range []uint32{running, 1 << 30} {
		s.Probe([]libraries.Mapped{{PID: pid, File: libraries.FileKey{Inode: uint64(pid)}, Path: "/nowhere/libcuda.so.1"}})
	}
	if !slices.Equal(again, []uint32{running}) {
		t.Errorf("processes %d are scanned again, want %d", again, running)
	}
}

// What a process names in its environment went around its share.
func TestFilesThatAreMappedAheadCountAgainstTheProcessThatNamesThem(t *testing.T) {
	var x told
	s := x.files(false)
	for i := range maxFilesOfProcess + 1 {
		l := mapped(t, ownPID, cudaapi.Driver, fmt.Sprintf("libcuda-%d.so", i), "x")
		l.For = 7
		s.Probe([]libraries.Mapped{l})
	}
	if len(x.done) != maxFilesOfProcess || len(x.warnings) != 1 || s.places.Held(7) != maxFilesOfProcess {
		t.Errorf("%d files are probed, %d places are taken, told %q", len(x.done), s.places.Held(7), x.warnings)
	}
	s.Probe([]libraries.Mapped{mapped(t, ownPID, cudaapi.Driver, "libcuda.so.1", "x")}) // this host's
	if len(x.done) != maxFilesOfProcess+1 {
		t.Error("this host's file is not probed")
	}
}

// The end of a session takes an hour, and so does SIGKILL, where the kernel removes one probe after
// the other, and one user has 512 files probed.
func TestFewerFilesAreProbedWhereProbesAreRemovedOneByOne(t *testing.T) {
	for multi, want := range map[bool]int{true: maxFiles / 2, false: maxFilesOneByOne / 2} {
		s := NewFiles(&Prober{multi: multi}, Options{Owner: func(uint32) uint32 { return 1 }, Warn: func(uint32, string) {}})
		files := 0
		for pid := range uint32(maxFiles) {
			if s.mayProbe(libraries.Mapped{PID: 1<<22 + pid}) { // above all PIDs: none is this process
				files++
			}
		}
		if files != want {
			t.Errorf("uprobe_multi %v: %d files of a user are probed, want %d", multi, files, want)
		}
	}
}
