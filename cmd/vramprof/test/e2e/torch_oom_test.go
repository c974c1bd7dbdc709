// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	oomMemory  = 1324 << 20 // of a GPU: about 1 GiB more than the context
	oomFlood   = 100
	oomRecords = 3 // at most, per process and minute
)

// oomJob is testdata/realtorch/oom.py in one way, on a separate GPU.
type oomJob struct {
	*realtorch.Job
	t      *testing.T
	way    string
	dir    string // of the records
	before realtorch.Point
}

// until continues the job from point to point.
func (j *oomJob) until(points ...string) {
	j.t.Helper()
	for _, name := range points {
		j.Go()
		if p := j.Next(name); name == "before" {
			j.before = p
		}
	}
}

// TestOutOfMemoryInPyTorchIsRecorded checks that memory that PyTorch got after a retry leaves no
// record, that a failed request leaves a record naming who holds how much, also if the error is
// uncaught, so that the process frees its tensors while it is walked, and that a flood leaves a
// limited number.
func TestOutOfMemoryInPyTorchIsRecorded(t *testing.T) {
	setupAlone(t) // a process that has ended is walked no more
	root := realtorch.Prepare(t)
	ways := []string{"retry", "fatal", "uncaught", "foreign", "flood"}
	name := fmt.Sprintf("oom%d_", os.Getpid())
	env := append(root.Env(t, len(ways), oomMemory), "PYTHON_COMM="+name)
	dir := t.TempDir()
	jobs := map[string]*oomJob{}
	for i, way := range ways {
		own := append(env[:len(env):len(env)], fmt.Sprint("CUDA_VISIBLE_DEVICES=", i))
		jobs[way] = &oomJob{Job: root.Start(t, own, "oom.py", way, "--begin", "--history", fmt.Sprint("--count=", oomFlood)), t: t, way: way, dir: dir}
	}
	for _, way := range ways {
		jobs[way].Next("begin")
	}
	s := startBoth(t, env, "--holders=1s", "--name", "^"+name, "--oom-dir", dir).ready()
	jobs["retry"].until("before", "end")
	jobs["fatal"].until("before")
	jobs["uncaught"].until("before")
	eventually(t, 3*time.Minute, "a walk has found what the job holds", func() bool { return jobs["uncaught"].isHeld(s.capture()) })
	for _, way := range []string{"fatal", "uncaught"} {
		out, err := jobs[way].Finish()
		if err == nil || !strings.Contains(out, "torch.OutOfMemoryError") {
			t.Errorf("%s: the job did not run out of memory: %v\n%s", way, err, out)
		}
	}
	jobs["foreign"].until("before", "failed")
	jobs["fatal"].one("ask", "PyTorch's allocator")
	jobs["uncaught"].one("ask", "PyTorch's allocator")
	jobs["foreign"].one("foreign", "cudaMalloc")
	jobs["flood"].until("before", "end")
	eventually(t, 90*time.Second, "the flood is recorded", func() bool { return len(jobs["flood"].records(".txt")) == oomRecords })
	for _, j := range jobs {
		if j.way != "fatal" && j.way != "uncaught" {
			if out, err := j.Finish(); err != nil {
				t.Errorf("%s: %v\n%s", j.way, err, out)
			}
		}
	}
	p := s.stop().profile()

	for way, want := range map[string]int{"retry": 0, "fatal": 1, "uncaught": 1, "foreign": 1, "flood": oomRecords} {
		for _, kind := range []string{".txt", ".pb.gz"} {
			if got := jobs[way].records(kind); len(got) != want {
				t.Errorf("%s: records %q, want %d", way, got, want)
			}
		}
	}
	want := fmt.Sprintf("%d further out-of-memory errors were not recorded", oomFlood-oomRecords)
	if !slices.ContainsFunc(p.Comments, func(c string) bool { return strings.Contains(c, want) }) || !strings.Contains(s.stderr.String(), want) {
		t.Errorf("neither the profile nor vramprof prints: %s\n%q\n%s", want, p.Comments, s.stderr.String())
	}
}

// isHeld reports whether the latest walk in a capture found what the job holds.
func (j *oomJob) isHeld(path string) bool {
	r, err := capture.Open(path)
	if err != nil {
		j.t.Fatal(err)
	}
	defer r.Close()
	s := replay(j.t, r)
	i := slices.IndexFunc(s.Processes, func(p ledger.Process) bool { return p.PID == uint32(j.Process.Pid) })
	if i < 0 || s.LatestWalk(i) == nil {
		return false
	}
	return slices.ContainsFunc(s.LatestWalk(i).Held, func(h ledger.Held) bool { return strings.Contains(h.Path, "held") })
}

func (j *oomJob) records(kind string) []string {
	list, err := filepath.Glob(filepath.Join(j.dir, fmt.Sprintf("vramprof-oom-%d-*%s", j.Process.Pid, kind)))
	if err != nil {
		j.t.Fatal(err)
	}
	return list
}

var firstHolder = regexp.MustCompile(`(?m)^1\. +(\S+ \S+) +\S*/(\S+) hold\n +8 live tensors`)

// one checks for one record of the job: it names who asked, and first among the holders the tensors
// that hold the memory.
func (j *oomJob) one(asker, by string) {
	j.t.Helper()
	eventually(j.t, 30*time.Second, "the error is recorded", func() bool { return len(j.records(".pb.gz")) == 1 })
	page, err := os.ReadFile(j.records(".txt")[0])
	if err != nil {
		j.t.Fatal(err)
	}
	text := string(page)
	asker = realtorch.Site(j.t, "oom.py", asker)
	wanted := regexp.MustCompile(`GiB wanted by  .*/` + regexp.QuoteMeta(asker) + ` .*\n +from ` + regexp.QuoteMeta(by) + `\n`)
	holder := realtorch.Site(j.t, "oom.py", "holder")
	held := j.before.At(holder)
	if m := firstHolder.FindStringSubmatch(text); !wanted.MatchString(text) || m == nil || m[2] != holder || m[1] != fmt.Sprintf("%d MiB", held.Bytes>>20) {
		j.t.Errorf("%s: want the requester %s, and as first holder 8 tensors of %d bytes of %s:\n%s", j.way, asker, held.Bytes, holder, text)
	}
	line := `(?m)^GPU \d: Fake GPU, .* of 1\.29 GiB free$`
	if fakecuda.OnNVIDIA() {
		line = `(?m)^GPU \d: Tesla T4, .* of 2\.29 GiB free$`
	}
	if !regexp.MustCompile(line).MatchString(text) {
		j.t.Errorf("%s: no line about NVML:\n%s", j.way, text)
	}
	if want := fmt.Sprintf(`(?m)^%d MiB +8 +cuda:0 +local ".*held.*main\(\)`, held.Bytes>>20); !strings.Contains(text, "Who keeps it") || !regexp.MustCompile(want).MatchString(text) {
		j.t.Errorf("%s: the record does not name who kept the memory when it ran out:\n%s", j.way, text)
	}
	if got := j.profiled(holder); got != held.Bytes || held.Blocks != 8 {
		j.t.Errorf("%s: %d live bytes of %s are in the profile, the job says %+v", j.way, got, holder, held)
	}
}

// profiled sums the live tensors of this job in the record's profile, below a line of the job.
func (j *oomJob) profiled(site string) (bytes uint64) {
	j.t.Helper()
	f, err := os.Open(j.records(".pb.gz")[0])
	if err != nil {
		j.t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		j.t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		j.t.Error(err)
	}
	planes := map[string]int64{}
	for _, s := range p.Sample {
		if s.NumLabel["pid"][0] == int64(j.Process.Pid) {
			planes[label(s, "plane")] += s.Value[3]
		}
		if label(s, "plane") != "tensor" || s.NumLabel["pid"][0] != int64(j.Process.Pid) {
			continue
		}
		if leaf := s.Location[0]; label(s, "callee") != "at::_ops::empty_memory_format::call" || leaf.Mapping == nil || leaf.Mapping.File != "[python]" {
			j.t.Errorf("%s: a stack ends in %s, which calls %q", j.way, leaf.Line[0].Function.Name, label(s, "callee"))
		}
		for _, l := range s.Location {
			if line := l.Line[0]; fmt.Sprintf("%s:%d", filepath.Base(line.Function.Filename), line.Line) == site {
				bytes += uint64(s.Value[3])
			}
		}
	}
	// At the error the cache is empty: PyTorch freed it before it gave up, except for the rest of
	// the segment in which NVIDIA's cuBLAS has its workspace. Requests of other libraries are not
	// PyTorch's.
	d := j.before.Devices[0]
	if want := int64(d.Allocated); planes["tensor"] != want || planes["unexplained"] != 0 && !isOfModules(planes["unexplained"]) || j.way != "foreign" && planes["cache"] != 0 && !(fakecuda.OnNVIDIA() && planes["cache"] < 20<<20) {
		j.t.Errorf("%s: planes %v, want %d bytes of tensors and nothing unexplained", j.way, planes, want)
	}
	return bytes
}
