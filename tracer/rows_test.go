// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const rowsFile = "testdata/rows.txt"

// block is a paragraph of testdata/rows.txt:
//
//	cudaMalloc cudaFree             the rows of the probe table that it proves
//	> cudaMalloc a 1000             a line for calls_c, in a process of its own
//	>> cudaIpcOpenMemHandle b file  a line for a second process, which runs while the first one waits at its end
//	cuda:0 device cudaMalloc …      the books of the first process
//	| cuda:0 imported …             and of the second
type block struct {
	rows    []string
	scripts [2][]string
	want    []string
	line    int
}

func readBlocks(t *testing.T) (blocks []block, comment string) {
	t.Helper()
	text, err := os.ReadFile(rowsFile)
	if err != nil {
		t.Fatal(err)
	}
	var b *block
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
			comment += line + "\n"
		case line == "":
			b = nil
		case b == nil:
			blocks = append(blocks, block{rows: strings.Fields(line), line: i + 1})
			b = &blocks[len(blocks)-1]
		case strings.HasPrefix(line, ">> "):
			b.scripts[1] = append(b.scripts[1], line[3:])
		case strings.HasPrefix(line, "> "):
			b.scripts[0] = append(b.scripts[0], line[2:])
		default:
			b.want = append(b.want, line)
		}
	}
	return blocks, comment
}

func TestEveryRowOfTheProbeTableHasItsProof(t *testing.T) {
	blocks, _ := readBlocks(t)
	proved := map[string]bool{}
	for _, b := range blocks {
		for _, name := range b.rows {
			proved[name] = true
			if !slices.ContainsFunc(cudaapi.Table, func(f cudaapi.Function) bool { return f.Name == name }) {
				t.Errorf("%s:%d: %s is no row of the probe table", rowsFile, b.line, name)
			}
		}
	}
	if len(cudaapi.Table) > bpf.MaxFunctions {
		t.Errorf("%d rows, but ids have a byte", len(cudaapi.Table))
	}
	for i := range cudaapi.Table {
		// Requests to the kernel driver are proved on NVIDIA's libraries:
		// TestSimulatedDriverNamesTheCallOfEachByte. So are the threads of NCCL:
		// TestNCCLsMemoryIsDividedByCommunicator.
		if f := &cudaapi.Table[i]; !proved[f.Name] && !f.Brief && f.Role != cudaapi.Initializes && f.Layer != cudaapi.System && f.Layer != cudaapi.NCCL {
			t.Errorf("%s has no block in %s", f.Name, rowsFile)
		}
	}
}

// TestEveryRowOfTheProbeTable runs all blocks under one tracer, once with the
// runtime on top of the driver, once on a driver whose functions begin as in CUDA 12.9 and, where a
// block calls the runtime only, once with a runtime that reaches the driver behind its exports.
func TestEveryRowOfTheProbeTable(t *testing.T) {
	fakecuda.OnlyFake(t, "it calls functions of all versions")
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	fake := fakecuda.Build(t)
	blocks, comment := readBlocks(t)
	folder := t.TempDir()
	env := append(fake.Env(t, 4, 8<<30), "FAKECUDA_GPUS=4")
	program := filepath.Join(folder, "calls_of_rows") // a name that no other test traces
	copyProgram(t, fake.Program("calls_c"), program)

	runner := &rowRunner{t: t, env: env, program: program, folder: folder}
	keeper := runner.start([]string{"cudaMalloc p 1", "ready", "wait"}, nil) // so that all is probed before the first block
	keeper.ready()
	var newer []string // variables of the newer driver, if there is one
	if runtime.GOARCH == "amd64" {
		newer = []string{"LD_LIBRARY_PATH=" + fake.Lib("driver_12.9") + ":" + fake.Lib("")}
		keeper := runner.start([]string{"cudaMalloc p 1", "ready", "wait"}, newer)
		keeper.ready()
	}
	tr, err := New(Config{Name: regexp.MustCompile("calls_of_rows"), Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	runner.tracer = tr
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	began := make(chan struct{})
	tr.config.Ready = func([]uint32) { close(began) }
	go func() { ended <- tr.Run(ctx) }()
	select {
	case <-began:
	case <-time.After(30 * time.Second):
		t.Fatal("the tracer is not ready after 30 s")
	}
	pids := make([][2]uint32, len(blocks))
	private := make([][2]uint32, len(blocks))
	onNewer := make([][2]uint32, len(blocks))
	books := described{tr: tr, lines: map[uint32][]string{}}
	for i := range blocks {
		books.describe(time.Second)
		pids[i] = runner.run(&blocks[i], nil)
		if newer != nil {
			onNewer[i] = runner.run(&blocks[i], newer)
		}
		if blocks[i].runtimeOnly() {
			explicit := blocks[i] // nothing tells the device of such a runtime's calls but cudaSetDevice
			for k, script := range explicit.scripts {
				if len(script) > 0 {
					explicit.scripts[k] = append([]string{"cudaSetDevice 0"}, script...)
				}
			}
			private[i] = runner.run(&explicit, []string{"FAKECUDA_PRIVATE=1"})
		}
		books.end(pids[i], onNewer[i], private[i])
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if s := books.describe(0); s.Stats.Lost != 0 {
		t.Errorf("%d events lost", s.Stats.Lost)
	}
	var written bytes.Buffer
	written.WriteString(comment)
	for i := range blocks {
		b := &blocks[i]
		got := books.of(pids[i])
		b.write(&written, got)
		if len(got) == 0 {
			t.Errorf("%s:%d: %s: nothing is in the books", rowsFile, b.line, strings.Join(b.rows, " "))
		}
		if *update {
			continue
		}
		compareLines(t, fmt.Sprintf("%s:%d: %s", rowsFile, b.line, strings.Join(b.rows, " ")), got, b.want)
		for how, pids := range map[string][2]uint32{"private": private[i], "driver 12.9": onNewer[i]} {
			if pids[0] != 0 {
				compareLines(t, fmt.Sprintf("%s:%d, %s: %s", rowsFile, b.line, how, strings.Join(b.rows, " ")), books.of(pids), b.want)
			}
		}
	}
	if *update {
		write(t, rowsFile, written.Bytes())
	}
}

// described has what the books had of processes soon after they ended: they drop the pools of a
// process 5 s after its end, and all blocks together take longer on a busy machine.
type described struct {
	tr    *Tracer
	ended []endedProcess
	lines map[uint32][]string
}

type endedProcess struct {
	pid uint32
	at  time.Time
}

func (d *described) end(processes ...[2]uint32) {
	for _, pids := range processes {
		for _, pid := range pids {
			if pid != 0 {
				d.ended = append(d.ended, endedProcess{pid, time.Now()})
			}
		}
	}
}

// describe describes the processes that ended so long ago, if there are any.
func (d *described) describe(ago time.Duration) *ledger.Snapshot {
	n := 0
	for n < len(d.ended) && time.Since(d.ended[n].at) >= ago {
		n++
	}
	if n == 0 && ago > 0 {
		return nil
	}
	s := d.tr.Snapshot()
	for _, x := range d.ended[:n] {
		d.lines[x.pid] = describeProcess(s, x.pid, "")
	}
	d.ended = d.ended[n:]
	return s
}

// of returns the lines of one or two processes; those of the second begin with a mark.
func (d *described) of(pids [2]uint32) []string {
	list := slices.Clone(d.lines[pids[0]])
	for _, line := range d.lines[pids[1]] {
		list = append(list, "| "+line)
	}
	return list
}

// runtimeOnly leaves out what the runtime does not tell: which contexts there are.
func (b *block) runtimeOnly() bool {
	for _, script := range b.scripts {
		for _, line := range script {
			name := strings.Fields(strings.TrimLeft(line, "!0123456789 "))[0]
			if strings.HasPrefix(name, "cu") && !strings.HasPrefix(name, "cuda") {
				return false
			}
		}
	}
	return true
}

func (b *block) write(out *bytes.Buffer, got []string) {
	fmt.Fprintf(out, "\n%s\n", strings.Join(b.rows, " "))
	for i, mark := range []string{"> ", ">> "} {
		for _, line := range b.scripts[i] {
			fmt.Fprintf(out, "%s%s\n", mark, line)
		}
	}
	for _, line := range got {
		fmt.Fprintln(out, line)
	}
}

func compareLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s\n got:\n\t%s\nwant:\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

var kindWords = map[ledger.Kind]string{
	ledger.Device: "device", ledger.Managed: "managed", ledger.Pinned: "pinned", ledger.Registered: "registered", ledger.Async: "async",
	ledger.VMM: "vmm", ledger.Array: "array", ledger.Imported: "imported", ledger.Graph: "graph",
	ledger.DriverContext: "context", ledger.GreenContext: "green context", ledger.Module: "module", ledger.Library: "library", ledger.GraphExec: "graph executable",
}

func deviceWord(device int32, kind ledger.Kind) string {
	switch {
	case kind.OnHost():
		return "host"
	case device < 0:
		return "unknown"
	}
	return fmt.Sprintf("cuda:%d", device)
}

// describeProcess describes a process in a snapshot, in lines that begin with mark.
func describeProcess(s *ledger.Snapshot, pid uint32, mark string) []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, mark+fmt.Sprintf(format, args...)) }
	of := func(process int) bool { return s.Processes[process].PID == pid }
	sums := map[string][4]uint64{} // a process's first stack may lack its unwind tables, and make another site
	for _, x := range s.Sites {
		if of(x.Process) {
			key := fmt.Sprintf("%s %s %s", deviceWord(x.Device, x.Kind), kindWords[x.Kind], x.API)
			sum := sums[key]
			for i, n := range []uint64{x.LiveObjects, x.LiveBytes, x.AllocObjects, x.AllocBytes} {
				sum[i] += n
			}
			sums[key] = sum
		}
	}
	for key, n := range sums {
		add("%s live %d/%d of %d/%d", key, n[0], n[1], n[2], n[3])
	}
	for _, f := range s.Failures {
		if of(f.Process) {
			add("%s %s %s failed %d times with %d for %d", deviceWord(f.Device, f.Kind), kindWords[f.Kind], f.API, f.Count, f.Result, f.Bytes)
		}
	}
	for _, r := range s.Releases {
		if of(r.Process) {
			add("%d/%d ended by cause %d", r.Objects, r.Bytes, r.Cause)
		}
	}
	for _, p := range s.Pools {
		if of(p.Process) {
			own := "a pool"
			if p.Handle == 0 {
				own = "the pool"
			}
			add("%s of %s used %d/%d reserve %d threshold %d", own, deviceWord(p.Device, ledger.Async), p.Objects, p.Used, p.Reserve, p.Threshold)
		}
	}
	// Of one function, too: the first call's stack may differ, where the driver was just loaded.
	objects := map[string][3]uint64{}
	for _, x := range s.Objects {
		if of(x.Process) && (x.Kind != ledger.DriverContext || strings.HasPrefix(x.API, "cuCtx")) { // every process has a primary context
			key := fmt.Sprintf("%s %s %s", deviceWord(x.Device, x.Kind), kindWords[x.Kind], x.API)
			sum := objects[key]
			objects[key] = [3]uint64{sum[0] + x.Live, sum[1] + x.Made, sum[2] + x.Bytes}
		}
	}
	for key, n := range objects {
		add("%s live %d of %d named %d", key, n[0], n[1], n[2])
	}
	slices.Sort(lines)
	return lines
}

// rowRunner runs scripts in processes.
type rowRunner struct {
	t               *testing.T
	env             []string
	program, folder string
	tracer          *Tracer
}

type rowProcess struct {
	*exec.Cmd
	t   *testing.T
	out *bufio.Reader
	in  interface{ Write([]byte) (int, error) }
}

func (r *rowRunner) start(script, more []string) *rowProcess {
	r.t.Helper()
	file, err := os.CreateTemp(r.folder, "script")
	if err != nil {
		r.t.Fatal(err)
	}
	fmt.Fprintln(file, strings.Join(script, "\n"))
	file.Close()
	cmd := exec.Command(r.program, file.Name())
	cmd.Env, cmd.Dir, cmd.Stderr = append(slices.Clone(r.env), more...), r.folder, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &rowProcess{cmd, r.t, bufio.NewReader(out), in}
}

func (p *rowProcess) ready() {
	p.t.Helper()
	if line, err := p.out.ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready ") {
		p.t.Fatalf("%v printed %q, %v", p.Args, line, err)
	}
}

func (p *rowProcess) pid() uint32 { return uint32(p.Process.Pid) }

// run gives the pids of the processes of a block.
func (r *rowRunner) run(b *block, more []string) (pids [2]uint32) {
	r.t.Helper()
	first := r.start(append(slices.Clone(b.scripts[0]), "ready", "wait"), more)
	pids[0] = first.pid()
	first.ready()
	r.seen(first)
	if len(b.scripts[1]) > 0 {
		second := r.start(append(slices.Clone(b.scripts[1]), "ready", "wait"), more)
		pids[1] = second.pid()
		second.ready()
		r.seen(second)
		fmt.Fprintln(second.in)
		r.end(b, second)
	}
	fmt.Fprintln(first.in)
	r.end(b, first)
	return pids
}

// seen waits until the tracer has noticed the process: one that ends before leaves nothing.
func (r *rowRunner) seen(p *rowProcess) {
	r.t.Helper()
	for end := time.Now().Add(10 * time.Second); !slices.Contains(r.tracer.table.Traced(), p.pid()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("process %d is not traced after 10 s", p.pid())
		}
	}
}

func (r *rowRunner) end(b *block, p *rowProcess) {
	r.t.Helper()
	if err := p.Wait(); err != nil {
		r.t.Fatalf("%s:%d: %v", rowsFile, b.line, err)
	}
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o755); err != nil {
		t.Fatal(err)
	}
}
