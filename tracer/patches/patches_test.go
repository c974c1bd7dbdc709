// SPDX-License-Identifier: Apache-2.0

package patches

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/probepoint"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// target is a process that maps the fake driver, and the code that it has of it.
type target struct {
	t      *testing.T
	pid    uint32
	code   *Code
	path   string
	at     uint64 // address of cuMemAlloc_v2
	mapped []libraries.Mapped
}

func start(t *testing.T, how ...string) *target {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the program patches machine code of x86-64")
	}
	fake := fakecuda.Build(t)
	library := filepath.Join(t.TempDir(), "libcuda.so.1") // in which no other test has probes
	text, err := os.ReadFile(fake.Lib("libcuda.so.1"))
	if err == nil {
		err = os.WriteFile(library, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(fake.Program("patched_c"), how...)
	cmd.Env = append(fake.Env(t, 1, 1<<30), "LD_LIBRARY_PATH="+filepath.Dir(library)+":"+string(fake))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready ") {
		t.Fatalf("the program printed %q, %v", line, err)
	}
	p := &target{t: t, pid: uint32(cmd.Process.Pid), path: library}
	f, err := os.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	elf, err := probepoint.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	functions := elf.Functions([]string{"cuInit", "cuMemAlloc_v2", "cuMemFree_v2"})
	if p.code, err = Read(f, functions); err != nil || len(functions) != 3 {
		t.Fatalf("%v, %v", functions, err)
	}
	maps, err := procfs.ReadWaiting(p.pid, "maps", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		var from, to, offset uint64
		if len(fields) < 6 || fields[5] != library || !strings.Contains(fields[1], "x") {
			continue
		}
		fmt.Sscanf(fields[0], "%x-%x", &from, &to)
		fmt.Sscanf(fields[2], "%x", &offset)
		p.mapped = append(p.mapped, libraries.Mapped{PID: p.pid, Name: "libcuda.so.1", Path: fmt.Sprintf("/proc/%d/map_files/%x-%x", procfs.Thread(p.pid), from, to)})
		if at := functions[1].Offset; functions[1].Name == "cuMemAlloc_v2" && offset <= at && at < offset+to-from {
			p.at = from + at - offset
		}
	}
	if p.at == 0 {
		t.Fatalf("cuMemAlloc_v2 is not mapped: %+v in\n%s", functions, maps)
	}
	return p
}

// write overwrites code from outside, as a debugger does.
func (p *target) write(distance uint64, code string) {
	p.t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.pid), os.O_RDWR, 0)
	if err != nil {
		p.t.Skip(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(code), int64(p.at+distance)); err != nil {
		p.t.Fatal(err)
	}
}

// expect compares the changed function, "" for none.
func (p *target) expect(what, function string) {
	p.t.Helper()
	list := p.code.Find(p.path, p.mapped)
	if function == "" && len(list) == 0 {
		return
	}
	if len(list) != 1 || list[0].PID != p.pid || list[0].Function != function || list[0].Err != nil {
		p.t.Errorf("%s: %+v, want %q", what, list, function)
	}
}

func TestPatchesAreFound(t *testing.T) {
	for how, function := range map[string]string{"none": "", "near": "cuMemAlloc_v2", "far": "cuMemAlloc_v2", "breakpoint": "cuMemAlloc_v2"} {
		start(t, how).expect(how, function)
	}
}

// Under its pid, /proc has no memory of such a process: it looks as if it had ended.
func TestPatchesOfAProcessWhoseMainThreadHasEndedAreFound(t *testing.T) {
	for how, function := range map[string]string{"none": "", "near": "cuMemAlloc_v2"} {
		p := start(t, how, "alone")
		p.expect(how, function)
		f, err := os.Stat(p.path)
		if err != nil {
			t.Fatal(err)
		}
		everywhere, _, err := libraries.Everywhere(f.Sys().(*syscall.Stat_t).Ino)
		everywhere = slices.DeleteFunc(everywhere, func(l libraries.Mapped) bool { return l.PID != p.pid })
		if err != nil || len(everywhere) == 0 {
			t.Errorf("its mappings are %+v, %v", everywhere, err)
		}
		p.mapped = everywhere
		p.expect(how, function)
	}
}

func TestChangesBehindTheProbeAreNoPatch(t *testing.T) {
	p := start(t, "none")
	p.write(10+behind, "\x90") // the probe is at 10
	p.expect("behind", "")
	p.write(10+behind-1, "\x90")
	p.expect("before", "cuMemAlloc_v2")
}

// A breakpoint that neither the process nor a debugger handles must be that of a probe in this
// process alone.
func TestBreakpointsOfDebuggersArePatches(t *testing.T) {
	p := start(t, "none")
	p.write(0, "\xcc")
	p.expect("of a probe", "")
	runtime.LockOSThread() // the tracer is this thread
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(int(p.pid)); err != nil {
		t.Skip(err)
	}
	p.expect("of a debugger", "cuMemAlloc_v2")
}

// A probe in another process would take the trap of a breakpoint at its place.
func TestBreakpointsWhereFunctionsAreProbedAreTold(t *testing.T) {
	for at, trap := range map[uint64]bool{0: false, 10: true} { // the probe is at 10
		p := start(t, "breakpoint") // at 0, which it handles
		p.write(at, "\xcc")
		if list := p.code.Find(p.path, p.mapped); len(list) != 1 || list[0].Trap != trap {
			t.Errorf("breakpoint at %d: %+v", at, list)
		}
	}
}

func TestCodeWithProbesOfItsOwnIsNotChanged(t *testing.T) {
	p := start(t, "breakpoint") // a breakpoint can be its own
	p.write(0, string(p.code.pieces[1].bytes[:1]))
	p.write(10, "\xcc")
	p.expect("of the process", "cuMemAlloc_v2")
	if list := p.code.FindProbed(p.path, p.mapped); len(list) > 0 {
		t.Errorf("with a probe there: %+v", list)
	}
	p.write(0, "\xcc")
	if list := p.code.FindProbed(p.path, p.mapped); len(list) != 1 {
		t.Errorf("with a probe there and a breakpoint elsewhere: %+v", list)
	}
}

func TestProcessesThatEndHaveNoPatches(t *testing.T) {
	p := start(t, "near")
	if err := unix.Kill(int(p.pid), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for len(partsOf(t, p.mapped[0])) > 0 {
	}
	p.expect("ended", "")
	p.mapped[0].PID = 1 << 30
	p.expect("no such process", "")
}

func TestTheSameCodeIsThatOfTheFunctionsOnly(t *testing.T) {
	text := []byte(strings.Repeat("\x90", 100))
	c, err := Read(strings.NewReader(string(text)), []probepoint.Function{{Name: "a", Offset: 10, Probe: 12}, {Name: "at the end", Offset: 90, Probe: 90}})
	if err != nil {
		t.Fatal(err)
	}
	for at, same := range map[int]bool{9: true, 10: false, 27: false, 28: true, 89: true, 90: false, 99: false} {
		changed := []byte(string(text))
		changed[at]++
		if got := c.Same(strings.NewReader(string(changed))); got != same {
			t.Errorf("byte %d changed: %v, want %v", at, got, same)
		}
	}
	if c.Same(strings.NewReader(string(text[:99]))) {
		t.Error("a shorter file is the same")
	}
}

func TestPagesOfAFileAreNotOwn(t *testing.T) {
	for entry, own := range map[uint64]bool{
		0: false, 1 << 63: true, 1<<63 | 1<<61: false, 1 << 62: true, 1<<62 | 1<<61: false, 1<<63 | 1<<56 | 1<<55: true,
	} {
		if isOwn(entry) != own {
			t.Errorf("%#x: want %v", entry, own)
		}
	}
}

func partsOf(t *testing.T, l libraries.Mapped) []libraries.Part {
	t.Helper()
	list, err := l.Parts()
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		t.Fatal(err)
	}
	return list
}
