// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func parsed(t testing.TB, s *ledger.Snapshot, st callstack.Stacks) *profile.Profile {
	t.Helper()
	var b bytes.Buffer
	if err := WriteProfile(&b, s, st); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProfile(t *testing.T) {
	golden(t, "profile.txt", []byte(parsed(t, testSnapshot(), testStacks()).String()))
}

func TestProfileHasExactlyTheSites(t *testing.T) {
	s := testSnapshot()
	p := parsed(t, s, testStacks())
	if n := len(p.Sample); n != len(s.Sites)+4 { // baselines and gaps of two processes
		t.Fatalf("%d samples, want %d", n, len(s.Sites)+4)
	}
	for i, x := range s.Sites {
		got := p.Sample[i]
		want := []int64{int64(x.AllocObjects), int64(x.AllocBytes), int64(x.LiveObjects), int64(x.LiveBytes), 0, 0}
		plane := "driver"
		if x.Kind == ledger.Pinned || x.Kind == ledger.Managed {
			want = []int64{want[0], want[1], 0, 0, want[2], want[3]}
			plane = map[ledger.Kind]string{ledger.Pinned: "host", ledger.Managed: "managed"}[x.Kind]
		}
		if fmt.Sprint(got.Value) != fmt.Sprint(want) {
			t.Errorf("site %d: values %v, want %v", i, got.Value, want)
		}
		labels := map[string][]string{"device": {DeviceName(x.Device, x.Kind)}, "kind": {KindName(x.Kind)}, "plane": {plane},
			"api": {x.API}, "comm": {untrusted.Clean(s.Processes[x.Process].Comm)}}
		if uuid := gpuUUID(s, x.Process, x.Device, x.Kind); uuid != "" {
			labels["gpu_uuid"] = []string{uuid}
		}
		w := s.Processes[x.Process].Workload
		for key, text := range map[string]string{"container": w.Container, "pod": w.Pod, "namespace": w.Namespace, "job": w.Job} {
			if text != "" {
				labels[key] = []string{untrusted.Clean(text)}
			}
		}
		if fmt.Sprint(got.Label) != fmt.Sprint(labels) {
			t.Errorf("site %d: labels %v, want %v", i, got.Label, labels)
		}
		if pid := got.NumLabel["pid"]; len(pid) != 1 || pid[0] != int64(s.Processes[x.Process].PID) {
			t.Errorf("site %d: pid %v", i, pid)
		}
		if b := got.NumLabel["bytes"]; len(b) != 1 || uint64(b[0]) != x.AllocBytes/x.AllocObjects || got.NumUnit["bytes"][0] != "bytes" {
			t.Errorf("site %d: bytes %v %v", i, b, got.NumUnit)
		}
		for key, text := range map[string]string{"rank": w.Rank, "local_rank": w.LocalRank, "world_size": w.WorldSize} {
			if n, ok := got.NumLabel[key]; ok != (digits(text) != "") || ok && fmt.Sprint(n) != "["+text+"]" {
				t.Errorf("site %d: %s %v, want %q", i, key, n, text)
			}
		}
		var lines []string
		for _, l := range got.Location {
			for _, line := range l.Line {
				lines = append(lines, fmt.Sprint(line.Function.Name, line.Function.SystemName, line.Function.Filename, line.Line, l.Address))
			}
		}
		var frameLines []string
		for _, f := range frames.Visible(testStacks(), x.Stack, x.API) {
			system := untrusted.Clean(f.SystemName)
			frameLines = append(frameLines, fmt.Sprint(frames.Name(&f), system, untrusted.Clean(f.File), int64(f.Line), f.Address))
		}
		if got, want := strings.Join(lines, "\n"), strings.Join(frameLines, "\n"); got != want {
			t.Errorf("site %d: stack\n%s\nwant\n%s", i, got, want)
		}
	}
}

func TestProfileKeepsThePprofContract(t *testing.T) {
	s := testSnapshot()
	p := parsed(t, s, testStacks())
	var types []string
	for _, v := range p.SampleType {
		types = append(types, v.Type+"/"+v.Unit)
	}
	if got := strings.Join(types, " "); got != "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes host_objects/count host_space/bytes" || p.DefaultSampleType != "inuse_space" {
		t.Errorf("sample types %s, default %s", got, p.DefaultSampleType)
	}
	if p.TimeNanos != s.Wall.UnixNano() || p.DurationNanos != 100*int64(time.Second) || p.DocURL != docURL || p.Period != 1 {
		t.Errorf("time %d, duration %d, URL %q, period %d", p.TimeNanos, p.DurationNanos, p.DocURL, p.Period)
	}
	if m := p.Mapping[0]; m.File != "/usr/bin/python3.11" {
		t.Errorf("first mapping %q, want the program of the largest process", m.File)
	}
	for _, m := range p.Mapping {
		if !m.HasFunctions {
			t.Errorf("mapping %q: pprof would look for its file", m.File)
		}
		if m.File == infer.Path && (m.BuildID != infer.BuildID || m.Start != infer.Start || m.Limit != infer.Limit || m.Offset != infer.Offset || !m.HasInlineFrames) {
			t.Errorf("mapping %+v, want %+v", m, infer)
		}
	}
	for _, f := range p.Function {
		if f.Name == "" {
			t.Errorf("function %d without a name", f.ID)
		}
		if strings.HasSuffix(f.Filename, ".py") && f.SystemName != "" {
			t.Errorf("%s: system name %q, want none", f.Name, f.SystemName)
		}
		if strings.HasPrefix(f.Name, "_PyEval") || f.Name == "method_vectorcall" {
			t.Errorf("%s was not dropped", f.Name)
		}
	}
	for _, want := range []string{
		"python3 [4242] on cuda:0 GPU-1a2b3c4d-0000-0000-0000-000000000000: NVML usage 3.34 GiB = CUDA allocations 2.05 GiB + context, other before attach 1.28 GiB + unexplained 10.0 MiB",
		"infer [5151] ended 40s ago and gave back the 64.0 MiB shown for it",
		"doubt: 12 events were lost",
		"warning: /usr/lib/libbroken.so.1",
	} {
		if !strings.Contains(strings.Join(p.Comments, "\n"), want) {
			t.Errorf("no comment %q in %q", want, p.Comments)
		}
	}
}

func TestMainProgramComesFirstEvenWithoutAFrame(t *testing.T) {
	s := testSnapshot()
	p := parsed(t, s, stackMap{})
	if len(p.Mapping) != 1 || p.Mapping[0].File != "/usr/bin/python3.11" {
		t.Errorf("mappings %v", p.Mapping)
	}
}

func TestSameSnapshotGivesTheSameBytes(t *testing.T) {
	write := func() string {
		var b bytes.Buffer
		s, st := testSnapshot(), testStacks()
		for _, err := range []error{
			WriteProfile(&b, s, st), WriteLeaks(&b, s, st, Options{}, Screen{}),
			WriteLeaksJSON(&b, s, st, Options{}), WriteSummary(&b, s, st, Options{}, Screen{}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	first := write()
	for range 20 {
		if write() != first {
			t.Fatal("two runs differ")
		}
	}
}

// pprofOf returns go tool pprof, with no binaries at hand, and what writes profiles for it.
func pprofOf(t *testing.T, st callstack.Stacks) (pprof func(t *testing.T, args ...string) string, write func(name string, s *ledger.Snapshot) string) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command: go tool pprof cannot be run")
	}
	dir := t.TempDir()
	write = func(name string, s *ledger.Snapshot) string {
		file := filepath.Join(dir, name)
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := WriteProfile(f, s, st); err != nil {
			t.Fatal(err)
		}
		return file
	}
	pprof = func(t *testing.T, args ...string) string {
		t.Helper()
		cmd := exec.Command(goTool, append([]string{"tool", "pprof"}, args...)...)
		cmd.Env = append(os.Environ(), "PPROF_BINARY_PATH="+dir, "PPROF_TMPDIR="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("pprof %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	return pprof, write
}

type pprofCase struct {
	name string
	args []string
	want []string
	not  []string
}

func (c *pprofCase) run(t *testing.T, pprof func(t *testing.T, args ...string) string) {
	t.Run(c.name, func(t *testing.T) {
		out := pprof(t, c.args...)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("pprof %v: no %q in\n%s", c.args, want, out)
			}
		}
		for _, not := range c.not {
			if strings.Contains(out, not) {
				t.Errorf("pprof %v: %q in\n%s", c.args, not, out)
			}
		}
	})
}

// TestPprof runs the commands that users run.
func TestPprof(t *testing.T) {
	pprof, write := pprofOf(t, testStacks())
	after := testSnapshot()
	before := testSnapshot()
	before.Sites[0].LiveBytes -= 500 * mib
	a, b := write("before.pb.gz", before), write("after.pb.gz", after)
	for _, c := range []pprofCase{
		{"top", []string{"-top", b},
			[]string{"File: python3.11", "Type: inuse_space", "Trainer.step", "<module>", "2100MB", "cudaMalloc", "1618MB", "[CUDA context, modules, other before attach]", "doubt: 12 events were lost"},
			[]string{"[libcudart.so.12]", "[[python]]"}},
		{"one GPU", []string{"-top", "-tagfocus=device=cuda:0", b}, []string{"Trainer.step", "handle(Request const&)"}, []string{"cudaMallocManaged"}},
		{"the other by UUID", []string{"-top", "-tagfocus=gpu_uuid=GPU-5e6f7a8b", b}, []string{"handle"}, []string{"Trainer.step"}},
		{"one process", []string{"-top", "-tagfocus=pid=5151", b}, []string{"64MB", "handle", "accounting for 500MB"}, []string{"Trainer.step"}},
		{"growth", []string{"-top", "-diff_base", a, b}, []string{"500MB", "Trainer.step"}, []string{"Pool::grow"}},
		{"churn", []string{"-top", "-sample_index=alloc_space", "-tagfocus=pid=5151", b}, []string{"192MB"}, nil},
		{"split by process", []string{"-tree", "-tagroot=pid", b}, []string{"4242", "5151"}, nil},
		{"large ones", []string{"-top", "-tagfocus=bytes=20mb:", b}, []string{"Trainer.step"}, []string{"cudaMallocHost"}},
		{"one rank, the first", []string{"-top", "-tagfocus=rank=0", b}, []string{"Trainer.step"}, []string{"handle"}},
		{"no such rank", []string{"-top", "-tagfocus=rank=1", b}, nil, []string{"Trainer.step"}},
		{"ranks", []string{"-top", "-tagfocus=rank=0:3", b}, []string{"Trainer.step"}, []string{"handle"}},
		{"split by rank", []string{"-peek=^0$", "-tagroot=rank", b}, []string{"__libc_start_call_main"}, nil},
		{"one pod", []string{"-top", "-tagfocus=pod=llama-0", b}, []string{"Trainer.step"}, []string{"handle"}},
		{"one container by its short id", []string{"-top", "-tagfocus=container=9e073649debe", b}, []string{"Trainer.step"}, []string{"handle"}},
		{"source lines", []string{"-top", "-lines", b}, []string{"train.py:42", "src/pool.h:18 (inline)"}, nil},
		{"the host's", []string{"-top", "-sample_index=host_space", "-tagfocus=plane=host", b}, []string{"accounting for 4kB", "cudaMallocHost"}, []string{"handle", "MB  100%"}},
		{"managed", []string{"-top", "-sample_index=host_space", "-tagfocus=plane=managed", b}, []string{"3MB total", "cudaMallocManaged"}, []string{"cudaMallocHost"}},
		{"merged", []string{"-top", a, b}, []string{"7840MB", "File: python3.11"}, nil},
	} {
		c.run(t, pprof)
	}
}

// manyStacks gives each id 30 frames, of which most are shared.
type manyStacks struct{ pool []callstack.Frame }

func newManyStacks() *manyStacks {
	m := &manyStacks{}
	for i := range 5000 {
		m.pool = append(m.pool, script(fmt.Sprintf("Module%d.forward", i), fmt.Sprintf("/home/ada/llm/part%d.py", i%50), i))
	}
	return m
}

func (m *manyStacks) Stack(id uint64) []callstack.Frame {
	list := []callstack.Frame{native("cudaMalloc", cudart, 0x7010)}
	rng := rand.New(rand.NewPCG(id, 1))
	for range 29 {
		list = append(list, m.pool[rng.IntN(len(m.pool))])
	}
	return list
}

func BenchmarkProfile(b *testing.B) {
	b.Run("live=1e6/sites=1e4", func(b *testing.B) {
		l := ledger.New(ledger.Options{})
		for i := range uint64(1e6) {
			l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Time: i * 1000, Address: 512 * (i + 1), Size: 512, Stack: 1 + i%10000, API: "cudaMalloc"})
		}
		st := newManyStacks()
		b.ReportAllocs()
		size := 0
		for b.Loop() {
			var out bytes.Buffer
			if err := WriteProfile(&out, l.Snapshot(1e10, time.Unix(0, 0)), st); err != nil {
				b.Fatal(err)
			}
			size = out.Len()
		}
		b.ReportMetric(float64(size), "file-bytes")
		b.ReportMetric(float64(peakRSS())/(1<<20), "peak-RSS-MiB")
	})
}

// peakRSS of this process in bytes, 0 if the kernel does not say.
func peakRSS() (bytes uint64) {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fmt.Sscan(rest, &bytes)
	return bytes << 10
}
