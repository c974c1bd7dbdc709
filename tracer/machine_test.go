// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/internal/sums"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/nvml"
	"github.com/vramprof/vramprof/tracer/unwind"
	"github.com/vramprof/vramprof/tracer/unwindcache"
)

// machine is a simulated machine under a tracer that runs in the test itself.
type machine struct {
	*Tracer
	t      *testing.T
	name   string // begins those of its programs, and of no others; comm has room for 15 bytes
	fake   fakecuda.Dir
	env    []string
	folder string
	idle   time.Duration // of the tracer, if not 0
	slow   time.Duration // how much longer each new stack takes to decode

	firstBlocks uint32 // entries of the first far map of live tensors, if not 0

	reads  *heldReads // of allocators, if not nil
	lastly func()
}

// heldReads are reads of allocators that take until release.
type heldReads struct {
	once           sync.Once
	began, release chan struct{}
}

// books is the file of all simulated machines of this process, one after the
// other: its NVML can open only one. It has no name of its own and is gone with the process.
var books = sync.OnceValues(func() (string, error) {
	fd, err := unix.MemfdCreate("fakecuda-test", unix.MFD_CLOEXEC)
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), err
})

var machines uint64

// keptTables keeps unwind tables for all machines of this process, as sessions do for each other:
// the first one reads PyTorch's libraries. TestMain removes them.
var keptTables = sync.OnceValues(func() (*unwindcache.Dir, error) {
	return unwindcache.Open(filepath.Join(scratch, "tables"))
})

// newMachine begins a machine with those GPUs; more are variables for all its programs.
func newMachine(t *testing.T, gpus int, more ...string) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	fake := fakecuda.Build(t)
	if fakecuda.OnNVIDIA() {
		return newSimulated(t, fake, gpus, more)
	}
	path, err := books()
	if err != nil {
		t.Fatal(err)
	}
	machines++ // another size makes it another machine
	m := &machine{t: t, name: fmt.Sprintf("m%d-%d_", os.Getpid(), machines), fake: fake, folder: t.TempDir(), lastly: func() {}}
	m.env = append(fake.Env(t, gpus, 16<<30+machines*(2<<20)), "FAKECUDA_SHM="+path)
	m.env = append(m.env, more...)
	for _, v := range m.env { // for our own NVML
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "FAKECUDA_") {
			t.Setenv(name, value)
		}
	}
	return m
}

// newSimulated is newMachine on NVIDIA's libraries, whose NVML is the test's own too:
// scripts/sim-check.sh --tests runs each test in a process of its own that begins with the
// simulated driver. Its machines are one after the other.
func newSimulated(t *testing.T, fake fakecuda.Dir, gpus int, more []string) *machine {
	t.Helper()
	machines++
	m := &machine{t: t, name: fmt.Sprintf("m%d-%d_", os.Getpid(), machines), fake: fake, folder: t.TempDir(), lastly: func() {}}
	if fakecuda.OnGPU() {
		m.env = append(fake.Env(t, gpus, 0), more...)
		return m
	}
	if !strings.Contains(os.Getenv("LD_PRELOAD"), "libsimdriver.so") {
		fakecuda.OnlyFake(t, "the test's own NVML has no simulated driver")
	}
	memory := uint64(16 << 30)
	for _, v := range more {
		if bytes, ok := strings.CutPrefix(v, "FAKECUDA_MEMORY="); ok {
			memory, _ = strconv.ParseUint(bytes, 10, 64)
		}
	}
	const reserved = 1 << 10 // MiB that the model keeps
	if want := fmt.Sprintf("SIMDRIVER_GPUS=%d SIMDRIVER_MEMORY_MIB=%d", gpus, memory>>20+reserved); want != fmt.Sprintf("SIMDRIVER_GPUS=%s SIMDRIVER_MEMORY_MIB=%s", os.Getenv("SIMDRIVER_GPUS"), os.Getenv("SIMDRIVER_MEMORY_MIB")) {
		t.Skipf("needs %s", want) // the driver of this process cannot be changed any more
	}
	m.env = append(fake.Env(t, gpus, memory), "SIMDRIVER_BOOK="+os.Getenv("SIMDRIVER_BOOK"))
	m.env = append(m.env, more...)
	return m
}

// program copies a program to a name by which it is traced.
func (m *machine) program(name string) string {
	m.t.Helper()
	path := filepath.Join(m.folder, m.name+name)
	if _, err := os.Stat(path); err != nil {
		copyProgram(m.t, m.fake.Program(name), path)
	}
	return path
}

// in gives the machine to a subtest.
func (m *machine) in(t *testing.T) *machine {
	part := *m
	part.t = t
	return &part
}

// trace begins to trace what program and more made of m.folder; a process
// that stays holds the libraries, so that all is probed before the next one starts.
func (m *machine) trace(change func(*Config)) {
	m.t.Helper()
	keeper := m.script("calls_c", nil, "cudaMalloc p 1", "ready", "wait")
	keeper.ready()
	driver, err := nvml.Open(m.t.Context(), m.fake.Driver("libnvidia-ml.so.1"))
	if err != nil {
		m.t.Skip(err)
	}
	m.t.Cleanup(func() { _ = driver.Close(context.Background()) })
	began := make(chan struct{})
	tables, err := keptTables()
	if err != nil {
		m.t.Fatal(err)
	}
	config := Config{
		Name: regexp.MustCompile("(?m)^" + m.name), Wait: true, NVML: driver, Tables: tables,
		Ready: func([]uint32) { close(began) },
	}
	if change != nil {
		change(&config)
	}
	if m.Tracer, err = New(config); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(m.Close)
	m.Tracer.events.idle = cmp.Or(m.idle, m.Tracer.events.idle)
	if decode := m.Tracer.reader.Decode; m.slow > 0 {
		m.Tracer.reader.Decode = func(raw []byte) (unwind.Stack, error) {
			time.Sleep(m.slow)
			return decode(raw)
		}
	}
	if scanner := m.Tracer.snapshots.scanner; m.reads != nil {
		traced := scanner.Traced
		scanner.Traced = func() []uint32 {
			m.reads.once.Do(func() { close(m.reads.began) })
			<-m.reads.release
			return traced()
		}
	}
	m.Tracer.tensors.BlockMaps.Far[0].MaxEntries = cmp.Or(m.firstBlocks, m.Tracer.tensors.BlockMaps.Far[0].MaxEntries)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	m.lastly = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			m.t.Errorf("Run: %v", err)
		}
	})
	m.t.Cleanup(m.lastly)
	select {
	case <-began:
	case <-time.After(2 * time.Minute): // a loaded machine takes longest
		m.t.Fatal("the tracer is not ready after 2 minutes")
	}
}

// snapshot is taken when all that has happened is in the books, NVML's figures too.
func (m *machine) snapshot() *ledger.Snapshot {
	m.t.Helper()
	m.eventsRead()
	m.workDone()
	m.Tracer.usage.Read(context.Background())
	m.eventsRead() // then that reading is taken in
	s := m.Snapshot()
	m.stacksRead(s)
	sums.Check(m.t, s)
	return s
}

// stacksRead waits for the stacks of all sites, which come by a ring of their own; a lost one is
// for others to complain of.
func (m *machine) stacksRead(s *ledger.Snapshot) {
	missing := func(x ledger.Site) bool { return x.Stack != 0 && len(m.Stack(x.Stack)) == 0 }
	for end := time.Now().Add(5 * time.Second); slices.ContainsFunc(s.Sites, missing) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

func (m *machine) eventually(what string, holds func() bool) {
	m.t.Helper()
	for end := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatal("not within three minutes: ", what)
		}
	}
}

func (m *machine) eventsRead() {
	m.t.Helper()
	enough := m.reaper.Emptied() + 2 // it may be at the end of the ring now, and what we wait for behind it
	m.eventually("the events are read", func() bool {
		m.events.flush() // it sleeps when there is nothing to read
		return m.reaper.Emptied() >= enough
	})
}

// workDone waits until the worker takes its least urgent job, which does nothing here, and the
// loader has nothing to do.
func (m *machine) workDone() {
	m.t.Helper()
	m.jobs.add(job{kind: jobForget})
	m.eventually("the worker has nothing to do", func() bool {
		m.jobs.mu.Lock()
		defer m.jobs.mu.Unlock()
		return len(m.jobs.todo[jobForget]) == 0
	})
	m.tables.loads.Wait()
	m.eventually("the loader has nothing to do", func() bool {
		m.jobs.mu.Lock()
		defer m.jobs.mu.Unlock()
		return !m.jobs.busy && len(m.jobs.todo[jobLoad])+len(m.jobs.todo[jobLoadLater]) == 0
	})
}

// usage is the machine's own account of a process; the newest of a pid.
func (m *machine) usage(pid uint32) fakecuda.Process {
	m.t.Helper()
	fakecuda.OnlyFake(m.t, "it compares with the fake's account of calls")
	all, err := fakecuda.ReadUsage(m.env)
	if err != nil {
		m.t.Fatal(err)
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].PID == pid {
			return all[i]
		}
	}
	m.t.Fatalf("the machine knows no process %d", pid)
	return fakecuda.Process{}
}

// program under test.
type program struct {
	*exec.Cmd
	t   *testing.T
	out *bufio.Reader
	in  io.WriteCloser
}

// start runs a command on the machine; it is killed when the test ends.
func (m *machine) start(more []string, name string, args ...string) *program {
	m.t.Helper()
	return m.startFiles(nil, more, name, args...)
}

// startFiles hands it files too, from descriptor 3 on.
func (m *machine) startFiles(files []*os.File, more []string, name string, args ...string) *program {
	m.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.ExtraFiles = files
	cmd.Env, cmd.Dir, cmd.Stderr = append(slices.Clone(m.env), more...), m.folder, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &program{cmd, m.t, bufio.NewReader(out), in}
}

// script runs lines by calls_c or alloc_c.
func (m *machine) script(name string, more []string, lines ...string) *program {
	m.t.Helper()
	return m.start(more, m.program(name), m.file(strings.Join(lines, "\n")+"\n"))
}

// file makes a file of the test with that text, under a name by which a script is traced.
func (m *machine) file(text string) string {
	m.t.Helper()
	f, err := os.CreateTemp(m.folder, m.name)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		m.t.Fatal(err)
	}
	return f.Name()
}

func (p *program) pid() uint32 { return uint32(p.Process.Pid) }

func (p *program) expect(want string) {
	p.t.Helper()
	if line, err := p.out.ReadString('\n'); err != nil || strings.TrimSpace(line) != want {
		p.t.Fatalf("%v printed %q, %v; want %q", p.Args, line, err, want)
	}
}

func (p *program) ready() { p.t.Helper(); p.expect(fmt.Sprint("ready ", p.pid())) }

// next lets it pass a wait.
func (p *program) next() { fmt.Fprintln(p.in) }

// end lets it pass its last wait.
func (p *program) end() {
	p.t.Helper()
	p.next()
	if err := p.Wait(); err != nil {
		p.t.Errorf("%v: %v", p.Args, err)
	}
}
