// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/internal/realtorch"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// moment is one line written by testdata/realtorch/moments.py.
type moment struct {
	Time, Allocated, Reserved, Max uint64
}

const (
	momentsMemory = 16 << 30
	momentsSlack  = 4 << 20 // bytes: allowed error of what is allocated if tensors are sampled, or one in momentsShare
	momentsShare  = 100
)

// momentsRun is one session of the job.
type momentsRun struct {
	name    string
	every   bool // every tensor is recorded
	nvml    bool
	session *session
	path    string
}

// momentsRuns returns all variants of the session; figures must not depend on the variant.
func momentsRuns(t *testing.T) (list []*momentsRun) {
	for _, every := range []bool{true, false} {
		for _, nvml := range []bool{true, false} {
			r := &momentsRun{every: every, nvml: nvml, name: fmt.Sprintf("every tensor %v, NVML %v", every, nvml)}
			r.path = filepath.Join(t.TempDir(), "run.vram")
			list = append(list, r)
		}
	}
	return list
}

func (r *momentsRun) start(t *testing.T, env []string, args ...string) {
	if !r.nvml {
		env = append(env[:len(env):len(env)], "LD_LIBRARY_PATH="+noNVML(t, env))
	}
	flags := []string{"record", "-o", r.path}
	if r.every {
		flags = append(flags, "--sample", "0")
	}
	r.session = start(t, env, append(flags, args...)...)
}

// noNVML creates a folder with all libraries of an environment's LD_LIBRARY_PATH except NVML.
func noNVML(t *testing.T, env []string) string {
	t.Helper()
	dir := t.TempDir()
	var paths string
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "LD_LIBRARY_PATH="); ok {
			paths = value
		}
	}
	for _, from := range filepath.SplitList(paths) {
		entries, _ := os.ReadDir(from)
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), "libnvidia-ml") {
				_ = os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())) // the first of a name wins
			}
		}
	}
	return dir
}

// TestEveryMomentEqualsTheJobs: at each moment that the real PyTorch recorded, the report as of
// that time has PyTorch's figures, and at the peak its peak, in every variant.
func TestEveryMomentEqualsTheJobs(t *testing.T) {
	setup(t)
	root := realtorch.Prepare(t)
	for _, when := range []string{"early", "late", "command"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			env := root.Env(t, 1, momentsMemory)
			log := filepath.Join(t.TempDir(), "moments")
			args := []string{"--moments", log}
			runs := momentsRuns(t)
			switch when {
			case "command":
				runs = []*momentsRun{runs[0], runs[3]}
				for _, r := range runs {
					own := root.Env(t, 1, momentsMemory)
					log := filepath.Join(t.TempDir(), "moments")
					job := root.Command(own, "moments.py", "--moments", log)
					r.start(t, job.Env, append([]string{"--"}, job.Args...)...)
					r.session.wait()
					r.check(t, readMoments(t, log))
				}
				return
			case "early":
				args = append(args, "--begin")
			case "late":
				args = append(args, "--old")
				runs = []*momentsRun{runs[0], runs[3]} // "early" has all pairs
			}
			j := root.Start(t, env, "moments.py", args...)
			j.Next(map[string]string{"early": "begin", "late": "old"}[when])
			for _, r := range runs {
				r.start(t, env, "-p", fmt.Sprint(j.Process.Pid))
			}
			for _, r := range runs {
				r.session.ready()
			}
			for _, r := range runs {
				r.session.untilUnwound(j.Process.Pid)
			}
			runs[0].session.afterASecond()
			for _, r := range runs[1:] {
				r.session.after(0)
			}
			j.Go()
			j.Next("end")
			for _, r := range runs {
				r.session.stop()
			}
			if out, err := j.Finish(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			moments := readMoments(t, log)
			for _, r := range runs {
				t.Run(r.name, func(t *testing.T) { r.check(t, moments) })
			}
		})
	}
}

func readMoments(t *testing.T, path string) (list []moment) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var m moment
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		list = append(list, m)
	}
	if len(list) < 250 {
		t.Fatalf("the job wrote %d moments", len(list))
	}
	return list
}

// check compares a capture with the job's record.
func (r *momentsRun) check(t *testing.T, moments []moment) {
	t.Helper()
	rec := openCapture(t, r.path)
	books, player := rec.NewLedger(), rec.Player()
	bad := 0
	for i, m := range moments {
		if err := player.PlayTo(m.Time, books); err != nil {
			t.Fatal(err)
		}
		if text := r.compare(rec.SnapshotOf(books, m.Time), m, m.Time-moments[0].Time); text != "" {
			if bad++; bad <= 5 {
				t.Errorf("moment %d of %d, at %.3fs: %s", i, len(moments), float64(m.Time-rec.Begin())/1e9, text)
			}
		}
	}
	if bad > 0 {
		t.Errorf("%d of %d moments differ from the job's", bad, len(moments))
	}
	r.checkPeak(t, rec, moments[len(moments)-1].Max)
	r.checkCommand(t, rec, moments[len(moments)/2])
}

// compare returns how a snapshot differs from the job, after ns after its first moment, or "".
func (r *momentsRun) compare(s *ledger.Snapshot, m moment, after uint64) string {
	at := slices.IndexFunc(s.Tensors, func(x ledger.Tensors) bool { return x.Device == 0 })
	if at < 0 {
		if m.Allocated == 0 {
			return ""
		}
		return fmt.Sprintf("no totals of tensors, the job had %+v", m)
	}
	x := s.Tensors[at]
	var sites uint64
	for i := range s.Sites {
		if s.Sites[i].Kind == ledger.Tensor && s.Sites[i].Device == 0 {
			sites += s.Sites[i].LiveBytes
		}
	}
	if x.Reserved != m.Reserved || !r.near(x.LiveBytes+x.Older, m.Allocated) || x.LiveBytes+x.Older != x.Allocated {
		return fmt.Sprintf("%d tensors + %d older of %d, %d reserved, the job had %+v", x.LiveBytes, x.Older, x.Allocated, x.Reserved, m)
	}
	if !r.near(x.Peak, m.Max) || sites != x.LiveBytes {
		return fmt.Sprintf("a peak of %d, sites of %d bytes of %d; the job had %+v", x.Peak, sites, x.LiveBytes, m)
	}
	for _, p := range s.Parts() {
		if p.Tensors+p.OlderAllocated != x.Allocated || p.Tensors+p.OlderAllocated+p.Cached+p.OlderCached != m.Reserved || p.Beyond() != 0 || p.Unexplained != 0 && !isOfModules(int64(p.Unexplained)) {
			return fmt.Sprintf("parts %+v, the job had %+v", p, m)
		}
	}
	if r.nvml != (len(s.Balances) == 1) && (after > 2e9 || !r.nvml) {
		return fmt.Sprintf("NVML reports %d processes on GPUs", len(s.Balances))
	}
	return ""
}

// isOfModules reports whether bytes may be those of the modules that NVIDIA's cuBLAS and PyTorch
// load, which no call reports. The fake CUDA has none.
func isOfModules(bytes int64) bool {
	const most = 96 << 20
	return fakecuda.OnNVIDIA() && bytes > 0 && bytes <= most
}

// near compares values that change with each tensor.
func (r *momentsRun) near(got, want uint64) bool {
	if r.every {
		return got == want
	}
	return max(got, want)-min(got, want) <= max(momentsSlack, want/momentsShare)
}

// checkPeak checks that the maximum equals PyTorch's to the byte, and that the books at that moment
// contain it.
func (r *momentsRun) checkPeak(t *testing.T, rec *capture.Reader, want uint64) {
	t.Helper()
	end := replay(t, rec)
	x := end.Tensors[0]
	if x.Peak != want {
		t.Errorf("a peak of %d bytes, PyTorch reports %d", x.Peak, want)
	}
	s, err := rec.Snapshot(x.PeakTime)
	if err != nil {
		t.Fatal(err)
	}
	var sites uint64
	for i := range s.Sites {
		if s.Sites[i].Kind == ledger.Tensor && s.Sites[i].Device == 0 {
			sites += s.Sites[i].LiveBytes
		}
	}
	if s.Tensors[0].Older == 0 {
		r.checkTimeline(t, want)
	}
	if got := s.Tensors[0]; got.Allocated != want || sites+got.Older != want {
		t.Errorf("at the peak: %d allocated, sites of %d bytes and %d older, PyTorch reports %d", got.Allocated, sites, got.Older, want)
	}
}

// checkTimeline checks that the timeline shows the peak, even if it lasted only 50 ms.
func (r *momentsRun) checkTimeline(t *testing.T, want uint64) {
	t.Helper()
	out, err := exec.Command(binary(t), "report", r.path, "--json", "--view", "timeline").Output()
	if err != nil {
		t.Fatal(err)
	}
	var v reportjson.ViewReport
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	most := uint64(0)
	for _, row := range v.Timeline.Rows { // NVIDIA's libraries have a second one, of host memory
		most = max(most, slices.Max(row.Tensor))
	}
	if most != want || len(v.Timeline.Rows) != 1 && !fakecuda.OnNVIDIA() {
		t.Errorf("the timeline has %d rows, and at most %d bytes of tensors, PyTorch reports %d", len(v.Timeline.Rows), most, want)
	}
}

// checkCommand checks that "vramprof report --at" prints the moment, and "--at peak" the peak.
func (r *momentsRun) checkCommand(t *testing.T, rec *capture.Reader, m moment) {
	t.Helper()
	for _, at := range []string{fmt.Sprintf("%dns", m.Time-rec.Begin()), "peak"} {
		out, err := exec.Command(binary(t), "report", r.path, "--json", "--at", at).Output()
		if err != nil {
			t.Fatalf("report --at %s: %v", at, err)
		}
		var v reportjson.ViewReport
		if err := json.Unmarshal(out, &v); err != nil {
			t.Fatal(err)
		}
		want := m.Allocated
		if at == "peak" {
			want = replay(t, rec).Tensors[0].Peak
		}
		if x := v.Summary.Tensors; len(x) != 1 || !r.near(x[0].AllocatorBytes, want) {
			t.Errorf("report --at %s prints %+v, want %d bytes allocated", at, x, want)
		}
	}
}

// TestReadingsOfNVMLContinueUnderLoad: a process that allocates 1,000 times per second has readings
// of each second, and nothing unexplained beyond the driver's last page. This also holds if it
// allocates while probes are attached.
func TestReadingsOfNVMLContinueUnderLoad(t *testing.T) {
	dir := setup(t)
	args := []string{"cudart", "3", "0", "--rate", "1000", "--size", "65536", "--keep", "--seconds"}
	t.Run("from its start", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "run.vram")
		start(t, dir.Env(t, 1, 8<<30), append(append([]string{"record", "-o", path, "--", dir.Program("bench_c")}, args...), "6")...).wait()
		rec := openCapture(t, path)
		checkReadings(t, rec, 40)
		if s := replay(t, rec); s.Sites[0].LiveBytes < 300<<20 {
			t.Errorf("the program allocated only %d bytes", s.Sites[0].LiveBytes)
		}
	})
	t.Run("attached meanwhile", func(t *testing.T) {
		env, path := dir.Env(t, 1, 8<<30), filepath.Join(t.TempDir(), "run.vram")
		cmd := exec.Command(dir.Program("bench_c"), append(args, "60")...)
		cmd.Env = env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		time.Sleep(time.Second)
		start(t, env, "record", "-o", path, "-p", fmt.Sprint(cmd.Process.Pid), "-d", "3").wait()
		checkReadings(t, openCapture(t, path), 20)
	})
}

// checkReadings checks what is unexplained at many moments, and the age of NVML's readings.
func checkReadings(t *testing.T, rec *capture.Reader, least int) {
	t.Helper()
	books, player := rec.NewLedger(), rec.Player()
	const page, step = 2 << 20, 100_000_000
	checked, worst, oldest := 0, uint64(0), uint64(0)
	for at := rec.Begin(); at < rec.End(); at += step {
		if err := player.PlayTo(at, books); err != nil {
			t.Fatal(err)
		}
		s := rec.SnapshotOf(books, at)
		for i, p := range s.Parts() {
			if s.Processes[p.Process].End != 0 {
				continue
			}
			checked++
			worst, oldest = max(worst, p.Unexplained, p.Beyond()), max(oldest, at-s.Balances[i].Time)
		}
	}
	t.Logf("%d moments: at most %d bytes unexplained, the oldest reading is %.2fs old", checked, worst, float64(oldest)/1e9)
	if checked < least || worst > page || oldest > uint64(2e9*slowness) {
		t.Errorf("of %d moments at most %d bytes are unexplained, and the oldest reading is %.2fs old", checked, worst, float64(oldest)/1e9)
	}
}
