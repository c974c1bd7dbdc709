// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

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
		if err := Write(f, s, st); err != nil {
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
	pprof, write := pprofOf(t, reporttest.Stacks())
	after := reporttest.Snapshot()
	before := reporttest.Snapshot()
	before.Sites[0].LiveBytes -= 500 * reporttest.MiB
	a, b := write("before.pb.gz", before), write("after.pb.gz", after)
	for _, c := range []pprofCase{
		{"top", []string{"-top", b},
			[]string{"File: python3.11", "Type: inuse_space", "Trainer.step", "<module>", "2000MB 51.02%  Linear.forward\n", "64MB  1.63%  Pool::take (inline)\n", "  Pool::grow<…> (inline)\n",
				"1618MB", "[CUDA context, modules, other before attach]", "doubt: 12 events were lost", "-tagleaf=callee"},
			[]string{"[libcudart.so.12]", "[[python]]", "alloc_block", "cuMemAlloc"}},
		{"what the leaves called", []string{"-top", "-tagleaf=callee", b}, []string{"2000MB 51.02% 51.02%     2000MB 51.02%  c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::alloc_block\n", "0     0%   100%     2000MB 51.02%  Linear.forward\n"}, nil},
		{"without libraries", []string{"-top", "-hide=site-packages|/lib/python3", b}, []string{"2000MB 51.02% 51.02%     2000MB 51.02%  Trainer.step\n"}, []string{"Linear.forward", "Thread.run"}},
		{"names in full", []string{"-top", "-symbolize=demangle=full", b}, []string{"Pool::grow<float>(int)", "handle(Request const&)"}, []string{"[[python]]"}},
		{"peek", []string{"-peek=^Pool::take$", b}, []string{"100% |   Pool::grow<…> (inline)"}, nil},
		{"one GPU", []string{"-top", "-tagfocus=device=cuda:0", b}, []string{"Trainer.step", "handle\n"}, []string{"cudaMallocManaged"}},
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
		{"the host's", []string{"-top", "-sample_index=host_space", "-tagfocus=plane=host", b}, []string{"accounting for 4kB", "evil<…>\n"}, []string{"handle", "MB  100%"}},
		{"managed", []string{"-top", "-sample_index=host_space", "-tagfocus=plane=managed", b}, []string{"3MB total", "cudaMallocManaged"}, []string{"cudaMallocHost"}},
		{"merged", []string{"-top", a, b}, []string{"7840MB", "File: python3.11"}, nil},
	} {
		c.run(t, pprof)
	}
}

// TestPprofOfPlanes runs the commands that users run to see planes, and those that could stumble
// over frames without a mapping and negative values.
func TestPprofOfPlanes(t *testing.T) {
	pprof, write := pprofOf(t, reporttest.TorchStacks())
	s := reporttest.TorchSnapshot()
	b := write("after.pb.gz", s)
	s.Sites[1].LiveBytes -= 100 * reporttest.MiB
	s.Tensors[0].LiveBytes -= 100 * reporttest.MiB
	a := write("before.pb.gz", s)
	for _, c := range []pprofCase{
		{"what NVML says", []string{"-top", "-nodefraction=0", "-unit=mb", b},
			[]string{"accounting for 46838MB, 100% of 46838MB", "20480MB 43.73% 43.73%    20480MB 43.73%  " + report.MarkOlder, "3372MB", report.MarkCache + "\n", "1014MB", report.MarkForeign + "\n", "without 12.0 MiB beyond NVML's figure", "13396MB 28.60% 72.33%    16468MB 35.16%  Linear.forward\n", "  torch::autograd::generated::AddmmBackward0::apply\n"},
			[]string{"c10::reportMemoryUsageToProfiler", "at::", "cudaHostAlloc", "Loader.next"}},
		{"one GPU", []string{"-top", "-nodefraction=0", "-unit=mb", "-tagfocus=gpu_uuid=GPU-1a2b3c4d", b}, []string{"accounting for 37930MB"}, []string{"serve.py"}},
		{"tensors", []string{"-top", "-unit=mb", "-nodefraction=0", "-tagfocus=plane=tensor", b}, []string{"accounting for 16384MB", "Block.forward", "AddmmBackward0"}, []string{report.MarkCache, "cudaMalloc\n", report.MarkOlder}},
		{"cache by line", []string{"-top", "-unit=mb", "-nodefraction=0", "-tagfocus=plane=cache", b}, []string{"3372MB  7.20%  7.20%     3372MB  7.20%  " + report.MarkCache, "3072MB", "Linear.forward"}, []string{"c10::report"}},
		{"the host", []string{"-top", "-sample_index=host_space", b}, []string{"840MB total", "Loader.next", "640MB"}, []string{"Block.forward", report.MarkUnexplained}},
		{"planes as roots", []string{"-top", "-nodefraction=0", "-unit=mb", "-tagroot=plane", b}, []string{"24842MB 53.04%  before", "3372MB  7.20%  cache"}, nil},
		{"growth", []string{"-top", "-unit=mb", "-diff_base", a, b}, []string{"100MB", "Block.forward", "-88MB", report.MarkUnexplained, "-12MB", report.MarkForeign}, []string{"Adam.init_state"}},
		{"traces", []string{"-traces", b}, []string{report.MarkCache}, nil},
		{"graph", []string{"-dot", "-nodefraction=0", b}, []string{"before attach"}, nil},
		{"source of what has none", []string{"-list=pytorch cached", b}, []string{"No source information for " + report.MarkOlderCached}, nil},
	} {
		c.run(t, pprof)
	}
}

func TestPprofReadsADifference(t *testing.T) {
	pprof, _ := pprofOf(t, reporttest.TorchStacks())
	a := New(reporttest.TorchSnapshot(), reporttest.TorchStacks())
	after := reporttest.TorchSnapshot()
	after.Sites[0].LiveBytes /= 2
	file := filepath.Join(t.TempDir(), "diff.pb.gz")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(WriteDifference(f, a, New(after, reporttest.TorchStacks())), f.Close()); err != nil {
		t.Fatal(err)
	}
	if out := pprof(t, "-top", file); !strings.Contains(out, "flat%") || !strings.Contains(out, "-") {
		t.Errorf("pprof says\n%s", out)
	}
}

// TestPprofDrawsNamesWithQuotes: pprof does not escape labels in the graph that it gives to
// Graphviz.
func TestPprofDrawsNamesWithQuotes(t *testing.T) {
	pprof, write := pprofOf(t, reporttest.TorchStacks())
	s := reporttest.TorchSnapshot()
	s.Processes[0].Comm, s.Processes[0].Exe = `a"b\`, `/srv/"x"`
	text := pprof(t, "-dot", "-nodefraction=0", write("quotes.pb.gz", s))
	if !strings.Contains(text, "comm:a”b∖") {
		t.Fatalf("no label of the process in\n%s", text)
	}
	for line := range strings.Lines(text) {
		if rest := dotText.ReplaceAllString(line, "\x00"); regexp.MustCompile(`\w\x00|\x00\w|"`).MatchString(rest) {
			t.Errorf("Graphviz does not read %s", line)
		}
	}
}

var dotText = regexp.MustCompile(`"(\\.|[^"\\])*"`)
