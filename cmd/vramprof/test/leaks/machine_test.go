// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/heapscan"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/nvml"
)

const (
	gpus   = 20
	memory = 64 << 30 // per GPU

	sample   = 1 << 20 // of tensors, the command's default
	runs     = 10      // seconds; what programs do for a part of their time, they do in a part of these
	lateness = 2 * time.Second
	patience = 2 * time.Minute
)

// machine is a simulated machine that runs all programs, batch after batch.
type machine struct {
	torch    realtorch.Root
	fake     fakecuda.Dir
	env      []string
	torchEnv []string      // with PyTorch's libraries
	folder   string        // of compiled programs
	name     string        // prefix of the names of all programs, and of no others
	launcher *net.UnixConn // starts programs with PyTorch; nil: each starts on its own
	nvml     *nvml.Driver
	moments  []int             // seconds after which the programs are judged, ascending
	walks    *heapscan.Options // nil: holders are not looked for
}

func newMachine(t *testing.T, moments []int) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	m := &machine{torch: realtorch.Prepare(t), fake: fakecuda.Build(t), folder: t.TempDir(), moments: moments}
	m.name = fmt.Sprintf("leaks%d_", os.Getpid()) // a process's name has at most 15 bytes
	m.env = m.fake.Env(t, gpus, memory)
	// PyTorch's own environment is that of another machine, which nothing uses.
	m.torchEnv = append(m.torch.Env(t, 1, memory), "PYTHON_COMM="+m.name)
	for _, v := range m.env {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "FAKECUDA_") {
			t.Setenv(name, value) // for this process's NVML
			m.torchEnv = append(m.torchEnv, v)
		}
	}
	var err error
	if m.nvml, err = nvml.Open(t.Context(), m.fake.Lib("libnvidia-ml.so.1")); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = m.nvml.Close(context.Background()) })
	m.startLauncher(t)
	return m
}

// compile builds a C source of the corpus against the fake CUDA.
func (m *machine) compile(t *testing.T, source, to string, flags ...string) {
	t.Helper()
	args := append([]string{"-std=gnu11", "-g", "-O1", "-fno-optimize-sibling-calls", "-Wall", "-Wextra", "-Werror", "-o", to}, flags...)
	args = append(args, "-I"+corpusFile(""), source, m.fake.Lib("libcudart.so.12"), m.fake.Lib("libcuda.so.1"))
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", source, err, out)
	}
}

// running is a started program; it is killed when its batch ends.
type running struct {
	*program
	words chan word // of all its processes; closed when they have ended
	PIDs  []uint32  // known so far
	late  bool      // the tracer started after it
	done  bool      // it has said so
}

// word is a line "ready PID" or "done PID".
type word struct {
	text string
	pid  uint32
}

// start runs a program on separate GPUs.
func (m *machine) start(t *testing.T, p *program, gpu int) *running {
	t.Helper()
	var visible []string
	for i := range p.Devices {
		visible = append(visible, strconv.Itoa(gpu+i))
	}
	env := map[string]string{"CUDA_VISIBLE_DEVICES": strings.Join(visible, ",")}
	args := []string{"--hold", "--seconds", strconv.Itoa(runs)}
	stdin, input := pipe(t)
	output, stdout := pipe(t)
	defer stdin.Close()
	defer stdout.Close()
	if p.isC() {
		path := filepath.Join(m.folder, m.name+strings.TrimSuffix(p.Name, ".c"))
		m.compile(t, p.file(), path)
		m.run(t, exec.Command(path, args...), m.env, env, stdin, stdout)
	} else {
		if p.Library != "" {
			env["LEAKS_LIBRARY"] = filepath.Join(m.folder, "lib"+strings.TrimSuffix(p.Library, ".c")+".so")
			m.compile(t, corpusFile(p.Library), env["LEAKS_LIBRARY"], "-shared", "-fPIC")
		}
		args = append([]string{p.file()}, args...)
		m.launch(t, args, env, stdin, stdout)
	}
	r := &running{program: p, words: make(chan word, 16)}
	go r.read(output)
	t.Cleanup(func() {
		for _, pid := range r.PIDs {
			_ = unix.Kill(int(pid), unix.SIGKILL) // a process with many tensors takes long to exit
		}
		input.Close()
		for range r.words {
		}
	})
	return r
}

func pipe(t *testing.T) (from, to *os.File) {
	t.Helper()
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return from, to
}

func (m *machine) run(t *testing.T, cmd *exec.Cmd, env []string, more map[string]string, stdin, stdout *os.File) {
	t.Helper()
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = slices.Clone(env), stdin, stdout, os.Stderr
	for name, value := range more {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
}

// read forwards the lines of its processes.
func (r *running) read(output *os.File) {
	defer close(r.words)
	defer output.Close()
	for lines := bufio.NewScanner(output); lines.Scan(); {
		text, number, _ := strings.Cut(lines.Text(), " ")
		if pid, err := strconv.ParseUint(number, 10, 32); err == nil && (text == "ready" || text == "done") {
			r.words <- word{text, uint32(pid)}
		}
	}
}

// await waits until each process of the program has printed text.
func (r *running) await(t *testing.T, text string, limit time.Duration) {
	t.Helper()
	timeout := time.After(limit)
	for said := 0; said < r.Processes; {
		select {
		case w, ok := <-r.words:
			if !ok {
				t.Fatalf("%s ended before it was %s", r.Name, text)
			}
			if w.text == "ready" {
				r.PIDs = append(r.PIDs, w.pid)
			}
			if w.text == text {
				said++
			}
		case <-timeout:
			t.Fatalf("%s was not %s within %v", r.Name, text, limit)
		}
	}
}

// trace starts to trace the processes of a batch; stop ends it.
func (m *machine) trace(t *testing.T, capture ledger.Books) (tr *tracer.Tracer) {
	t.Helper()
	began := make(chan struct{})
	tr, err := tracer.New(tracer.Config{
		Name: regexp.MustCompile("(?m)^" + m.name), Wait: true, NVML: m.nvml, Sample: sample, Walks: m.walks, Capture: capture, Budget: *budget / 100,
		Ready: func([]uint32) { close(began) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-began:
	case <-time.After(patience):
		t.Fatalf("the tracer is not ready after %v", patience)
	}
	return tr
}

// logCost logs how much of their time tracing would have taken of the programs, and for how much of
// the time it did not trace their tensors.
func logCost(t *testing.T, s *ledger.Snapshot) {
	c, over := s.Stats.Cost, 0
	span := float64(s.End - s.Begin)
	for i := range s.Tensors {
		const reports = 2 // of each tensor
		x := &s.Tensors[i]
		traced := span - float64(c.Away)
		if share := reports * float64(x.AllocObjects) * float64(c.Price) / traced; x.Device >= 0 && share > *budget/100 {
			over++
		}
	}
	var untraced, allocated uint64
	for i := range s.Tensors {
		untraced, allocated = untraced+s.Tensors[i].Untraced, allocated+s.Tensors[i].Allocated
	}
	t.Logf("budget %.3g %%: %d allocators would take more; the busiest took %.2f %% (at most %.2f %% in 10 s); not traced for %.1f %% of the time; %.1f %% of %d MiB without a stack for that",
		*budget, over, 100*c.Session.Share(), 100*c.Highest.Share(), 100*float64(c.Away)/span, 100*float64(untraced)/float64(max(allocated, 1)), allocated>>20)
}

// observe runs a batch of programs, some of which start before the tracer. It returns the books of
// the moments when all have run for so long, and still run.
func (m *machine) observe(t *testing.T, b batch) *observation {
	t.Helper()
	var all []*running
	gpu := 0
	start := func(list []*program, late bool) {
		begun := len(all)
		for _, p := range list {
			r := m.start(t, p, gpu)
			r.late = late
			gpu += p.Devices
			all = append(all, r)
		}
		for _, r := range all[begun:] {
			r.await(t, "ready", patience)
		}
	}
	start(b.late, true)
	time.Sleep(lateness)
	excerpt := newExcerpt()
	tr := m.trace(t, excerpt)
	start(b.early, false)
	begin := time.Now()
	var moments []moment
	for _, seconds := range m.moments {
		time.Sleep(time.Until(begin.Add(time.Duration(seconds) * time.Second)))
		for _, r := range all {
			if seconds >= runs && !r.done {
				r.await(t, "done", patience)
				r.done = true
			}
		}
		moments = append(moments, moment{seconds, tr.Snapshot()})
	}
	if *budget > 0 {
		logCost(t, moments[len(moments)-1].Snapshot)
	}
	o := observationOf(tr, all, moments)
	o.excerpt = excerpt
	return o
}
