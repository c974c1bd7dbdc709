// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func parsed(t testing.TB, s *ledger.Snapshot, st callstack.Stacks) *profile.Profile {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, s, st); err != nil {
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
	reporttest.Golden(t, "profile.txt", []byte(parsed(t, reporttest.Snapshot(), reporttest.Stacks()).String()))
}

func TestProfileHasExactlyTheSites(t *testing.T) {
	s := reporttest.Snapshot()
	p := parsed(t, s, reporttest.Stacks())
	if n := len(p.Sample); n != len(s.Sites)+4 { // baselines and gaps of two processes
		t.Fatalf("%d samples, want %d", n, len(s.Sites)+4)
	}
	for i, x := range s.Sites {
		got := p.Sample[i]
		want := []int64{int64(x.AllocObjects), int64(x.AllocBytes), int64(x.LiveObjects), int64(x.LiveBytes), 0, 0, int64(x.LiveObjects), int64(x.LiveBytes)}
		plane := "driver"
		if x.Kind == ledger.Pinned || x.Kind == ledger.Managed {
			want = []int64{want[0], want[1], 0, 0, want[2], want[3], 0, 0}
			plane = map[ledger.Kind]string{ledger.Pinned: "host", ledger.Managed: "managed"}[x.Kind]
		}
		if fmt.Sprint(got.Value) != fmt.Sprint(want) {
			t.Errorf("site %d: values %v, want %v", i, got.Value, want)
		}
		labels := map[string][]string{"device": {format.Device(x.Device, x.Kind)}, "kind": {format.Kind(x.Kind)}, "plane": {plane},
			"api": {x.API}, "comm": {untrusted.Clean(s.Processes[x.Process].Comm)}}
		if uuid := report.GPUUUID(s, x.Process, x.Device, x.Kind); uuid != "" {
			labels["gpu_uuid"] = []string{uuid}
		}
		w := s.Processes[x.Process].Workload
		for key, text := range map[string]string{"container": w.Container, "pod": w.Pod, "namespace": w.Namespace, "job": w.Job} {
			if text != "" {
				labels[key] = []string{untrusted.Clean(text)}
			}
		}
		visible := frames.Visible(reporttest.Stacks(), x.Stack, x.API)
		cut, callee := frames.Leaf(visible)
		if callee != "" {
			labels["callee"] = []string{callee}
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
			if n, ok := got.NumLabel[key]; ok != (format.Digits(text) != "") || ok && fmt.Sprint(n) != "["+text+"]" {
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
		for _, f := range visible[cut:] {
			system := untrusted.Clean(f.SystemName)
			frameLines = append(frameLines, fmt.Sprint(frames.ShortName(&f), system, untrusted.Clean(f.File), int64(f.Line), f.Address))
		}
		if got, want := strings.Join(lines, "\n"), strings.Join(frameLines, "\n"); got != want {
			t.Errorf("site %d: stack\n%s\nwant\n%s", i, got, want)
		}
	}
}

func TestProfileKeepsThePprofContract(t *testing.T) {
	s := reporttest.Snapshot()
	p := parsed(t, s, reporttest.Stacks())
	var types []string
	for _, v := range p.SampleType {
		types = append(types, v.Type+"/"+v.Unit)
	}
	if got := strings.Join(types, " "); got != "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes host_objects/count host_space/bytes peak_objects/count peak_space/bytes" || p.DefaultSampleType != "inuse_space" {
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
		if m.File == reporttest.Infer.Path && (m.BuildID != reporttest.Infer.BuildID || m.Start != reporttest.Infer.Start || m.Limit != reporttest.Infer.Limit || m.Offset != reporttest.Infer.Offset || !m.HasInlineFrames) {
			t.Errorf("mapping %+v, want %+v", m, reporttest.Infer)
		}
	}
	for _, f := range p.Function {
		if f.Name == "" {
			t.Errorf("function %d without a name", f.ID)
		}
		if strings.ContainsAny(f.Name, "(") {
			t.Errorf("%s is no simple name", f.Name)
		}
		if strings.HasSuffix(f.Filename, ".py") && f.SystemName != "" {
			t.Errorf("%s: system name %q, want none", f.Name, f.SystemName)
		}
		if strings.HasPrefix(f.Name, "_PyEval") || f.Name == "method_vectorcall" {
			t.Errorf("%s was not dropped", f.Name)
		}
	}
	for _, want := range []string{
		"python3 [4242] on cuda:0 GPU-1a2b3c4d-0000-0000-0000-000000000000: NVML usage 3.34 GiB = other CUDA 2.05 GiB + context, other before attach 1.28 GiB + unexplained 10.0 MiB",
		"infer [5151] ended 40s ago and gave back the 500 MiB shown for it",
		"doubt: 12 events were lost",
		"warning: /usr/lib/libbroken.so.1",
	} {
		if !strings.Contains(strings.Join(p.Comments, "\n"), want) {
			t.Errorf("no comment %q in %q", want, p.Comments)
		}
	}
}

func TestMainProgramComesFirstEvenWithoutAFrame(t *testing.T) {
	s := reporttest.Snapshot()
	p := parsed(t, s, reporttest.StackMap{})
	if len(p.Mapping) != 1 || p.Mapping[0].File != "/usr/bin/python3.11" {
		t.Errorf("mappings %v", p.Mapping)
	}
}
