// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/watch"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// sample is one value of a scrape.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

type samples []sample

// of returns the sum of a metric over the series that have these labels, "plane=tensor".
func (list samples) of(name string, with ...string) (sum float64, n int) {
	for _, x := range list {
		fits := x.name == name
		for _, w := range with {
			key, value, _ := strings.Cut(w, "=")
			fits = fits && x.labels[key] == value
		}
		if fits {
			sum += x.value
			n++
		}
	}
	return sum, n
}

func scrape(t testing.TB, c *Collector) (list samples) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	found, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		for _, m := range f.Metric {
			x := sample{name: f.GetName(), labels: map[string]string{}, value: m.GetGauge().GetValue() + m.GetCounter().GetValue()}
			for _, l := range m.Label {
				x.labels[l.GetName()] = l.GetValue()
			}
			list = append(list, x)
		}
	}
	return list
}

// afterJudging returns a Watcher that has judged a snapshot.
func afterJudging(s *ledger.Snapshot) *watch.Watcher {
	w := watch.New(reporttest.Stacks(), nil)
	w.For(s)
	return w
}

func sessions() map[string]*ledger.Snapshot {
	flooded, _ := reporttest.Flooded()
	return map[string]*ledger.Snapshot{
		"native": reporttest.Snapshot(), "torch": reporttest.TorchSnapshot(), "kinds": reporttest.KindsSnapshot(), "managed": reporttest.ManagedSnapshot(), "system": reporttest.SystemSnapshot(),
		"asleep": reporttest.AsleepSnapshot(), "ended": reporttest.Ended(), "oom": reporttest.OOMSnapshot(), "ranks": reporttest.RanksSnapshot(8),
		"held": reporttest.Held(), "stuck": reporttest.Stuck(), "objects": reporttest.ObjectsSnapshot(), "flooded": flooded, "empty": {},
	}
}

func TestPlanesAddUpToWhatNVMLReports(t *testing.T) {
	for name, s := range sessions() {
		t.Run(name, func(t *testing.T) {
			c := New(Options{PID: true})
			c.Set(s, Own{})
			list := scrape(t, c)
			usage := map[string]float64{}
			for _, b := range s.Balances {
				if p := s.Processes[b.Process]; p.End == 0 {
					usage[fmt.Sprint(p.PID)] += float64(int64(b.Usage) + b.Since)
				}
			}
			for pid, want := range usage {
				got, _ := list.of("vramprof_memory_bytes", "pid="+pid)
				over, _ := list.of("vramprof_overbooked_bytes", "pid="+pid)
				if got != want {
					t.Errorf("process %s: the planes add up to %.0f (%.0f taken off), NVML reports %.0f", pid, got, over, want)
				}
			}
			for _, x := range list {
				if x.name == "vramprof_memory_bytes" && x.value < 0 {
					t.Errorf("%v is %v", x.labels, x.value)
				}
			}
		})
	}
}

func TestPlanesAndTheRestAddUpToWhatTheGPUUses(t *testing.T) {
	s := reporttest.TorchSnapshot()
	c := New(Options{})
	c.Set(s, Own{})
	list := scrape(t, c)
	for _, g := range s.GPUs {
		planes, _ := list.of("vramprof_memory_bytes", "UUID="+g.UUID)
		rest, _ := list.of("vramprof_gpu_memory_untraced_bytes", "UUID="+g.UUID)
		used, n := list.of("vramprof_gpu_memory_used_bytes", "UUID="+g.UUID)
		if planes+rest != used || n != 1 {
			t.Errorf("GPU %d: planes %.0f and untraced %.0f, used %.0f", g.Index, planes, rest, used)
		}
	}
}

func TestMetricsFollowTheRulesOfPrometheus(t *testing.T) {
	for name, s := range sessions() {
		for _, pid := range []bool{false, true} {
			c := New(Options{PID: pid, Version: "1.2.3", Verdicts: afterJudging(s)})
			c.Set(s, Own{Kernel: 1, Began: time.Unix(1, 0), Archive: &Archive{}, Unwind: []Table{{"rules", 1, 2}}})
			r := prometheus.NewRegistry()
			r.MustRegister(c)
			found, err := r.Gather()
			if err != nil {
				t.Fatal(err)
			}
			problems, err := promlint.NewWithMetricFamilies(found).Lint()
			if err != nil || len(problems) > 0 {
				t.Errorf("%s: %v %v", name, problems, err)
			}
		}
	}
}

// fleet has pods on one GPU with a megabyte each.
func fleet(pods int, edit func(i int, p *ledger.Process)) *ledger.Snapshot {
	s := &ledger.Snapshot{Begin: 1, End: 100 * reporttest.Second}
	s.GPUs = []ledger.GPU{{UUID: "GPU-a", Total: 80 << 30, Used: 40 << 30}}
	for i := range pods {
		p := ledger.Process{PID: uint32(1000 + i), Begin: 1, Devices: []string{"GPU-a"}, Workload: ledger.Workload{Namespace: "ml", Pod: fmt.Sprintf("pod-%d", i), Container: fmt.Sprintf("c%d", i)},
			Totals: []ledger.Total{{Kind: ledger.Device, LiveObjects: 1, LiveBytes: 1 << 20, AllocObjects: 3, AllocBytes: 3 << 20, PeakBytes: 2 << 20}}}
		if edit != nil {
			edit(i, &p)
		}
		s.Processes = append(s.Processes, p)
		s.Sites = append(s.Sites, ledger.Site{Process: i, API: "cudaMalloc", Kind: ledger.Device, LiveObjects: 1, LiveBytes: 1 << 20, AllocObjects: 3, AllocBytes: 3 << 20})
		s.Balances = append(s.Balances, ledger.Balance{Process: i, UUID: "GPU-a", Usage: 1 << 20, Live: 1 << 20})
	}
	return s
}

func TestSeriesAreBoundedAndTheRestIsSummed(t *testing.T) {
	c := New(Options{})
	c.Set(fleet(3000, nil), Own{})
	list := scrape(t, c)
	sum, _ := list.of("vramprof_memory_bytes")
	rest, n := list.of("vramprof_memory_bytes", "pod=other", "plane=driver")
	if sum != 3000<<20 || rest != 2000<<20 || n != 1 {
		t.Errorf("all %.0f, of them %.0f in %d series of others", sum, rest, n)
	}
	sets, _ := list.of("vramprof_label_sets")
	merged, _ := list.of("vramprof_label_sets_merged")
	if sets != maxRows || merged != 2000 {
		t.Errorf("%v label sets, %v merged", sets, merged)
	}
	c.Set(fleet(0, nil), Own{})
	list = scrape(t, c)
	if _, n := list.of("vramprof_memory_bytes"); n != 0 {
		t.Errorf("%d series of memory without a process", n)
	}
	if sets, _ := list.of("vramprof_label_sets"); sets != 0 {
		t.Errorf("%v label sets without a process", sets)
	}
}

func TestContainersOfPodsAreNamed(t *testing.T) {
	c := New(Options{})
	c.Set(fleet(2, func(i int, p *ledger.Process) { p.PodContainer = []string{"trainer", ""}[i] }), Own{})
	list := scrape(t, c)
	for _, container := range []string{"trainer", "c1"} { // the second's name is unknown: its id
		if _, n := list.of("vramprof_memory_bytes", "container="+container); n == 0 {
			t.Errorf("no container %s", container)
		}
	}
}

func TestOneContainerDoesNotTakeAllSeries(t *testing.T) {
	s := fleet(2700, func(i int, p *ledger.Process) {
		if i < 2000 {
			p.Container, p.Job = "hostile", fmt.Sprint("job-", i)
		}
	})
	c := New(Options{})
	c.Set(s, Own{})
	if got, _ := scrape(t, c).of("vramprof_memory_bytes", "pod=pod-2500"); got != 1<<20 {
		t.Errorf("a pod beside a hostile container has %.0f", got)
	}
}

// TestOneUserDoesNotTakeAllSeries: its processes name different containers, beside a job that was
// there before and one that comes later.
func TestOneUserDoesNotTakeAllSeries(t *testing.T) {
	s := fleet(2002, func(i int, p *ledger.Process) {
		p.Workload = ledger.Workload{Container: fmt.Sprint("apptainer-", i)}
		switch p.User = 1001; i {
		case 0:
			p.User, p.Workload = 1002, ledger.Workload{Job: "first"}
		case 2001:
			p.User, p.Workload = 1003, ledger.Workload{Job: "last"}
		}
	})
	c := New(Options{})
	c.Set(s, Own{})
	list := scrape(t, c)
	for _, job := range []string{"first", "last"} {
		if got, n := list.of("vramprof_memory_bytes", "hpc_job="+job, "plane=driver"); got != 1<<20 || n != 1 {
			t.Errorf("the %s job has %.0f in %d series", job, got, n)
		}
	}
	if sets, _ := list.of("vramprof_label_sets"); sets > maxRows/2+2 {
		t.Errorf("%.0f sets of labels", sets)
	}
	if sum, _ := list.of("vramprof_memory_bytes", "plane=driver"); sum != 2002<<20 {
		t.Errorf("the sum is %.0f", sum)
	}
}

// TestManyUsersLeaveSeriesForANewcomer, also with several users who take all that they can get.
func TestManyUsersLeaveSeriesForANewcomer(t *testing.T) {
	s := fleet(4001, func(i int, p *ledger.Process) {
		p.User, p.Workload = uint32(1001+i%4), ledger.Workload{Container: fmt.Sprint("apptainer-", i)}
		if i == 4000 {
			p.User = 2000
		}
	})
	c := New(Options{})
	c.Set(s, Own{})
	if got, n := scrape(t, c).of("vramprof_memory_bytes", "user=1999", "plane=driver"); got != 1<<20 || n != 1 {
		t.Errorf("a newcomer has %.0f in %d series", got, n)
	}
}

// TestNoProcessAddsToTheSeriesOfAnotherUsersJob: SLURM_JOB_ID is for each process to set.
func TestNoProcessAddsToTheSeriesOfAnotherUsersJob(t *testing.T) {
	s := fleet(3, func(i int, p *ledger.Process) {
		p.User, p.Workload = 1001, ledger.Workload{Job: "4242", Container: "llama.sif", Pod: "llama-0", Namespace: "ml"}
		if i == 2 {
			p.User = 1002
		}
	})
	c := New(Options{})
	c.Set(s, Own{})
	list := scrape(t, c)
	for user, want := range map[string]float64{"1000": 2 << 20, "1001": 1 << 20} {
		if got, _ := list.of("vramprof_memory_bytes", "hpc_job=4242", "plane=driver", "user="+user); got != want {
			t.Errorf("user %s has %.0f, want %.0f", user, got, want)
		}
	}
}

func TestLabelsOfHostileProcessesAreCleanAndShort(t *testing.T) {
	s := fleet(1, func(_ int, p *ledger.Process) {
		p.Pod, p.Job, p.Comm = "\x1b[31m\"}\n"+strings.Repeat("很", 200), "\xff\x00", "a\"b\\c"
	})
	c := New(Options{PID: true})
	c.Set(s, Own{})
	for _, x := range scrape(t, c) {
		for key, value := range x.labels {
			if len(value) > maxLabel || !utf8.ValidString(value) || !reporttest.Printable(value) {
				t.Errorf("%s %s=%q", x.name, key, value)
			}
		}
	}
}

func TestAJobIsItsNumber(t *testing.T) {
	for job, want := range map[string]string{"llama (4242)": "4242", "4242": "4242", "llama": "llama", "": "", "(": "(", ")": ")", "a ()": "a ()", "a (b) (7_1)": "7_1"} {
		if got := jobNumber(job); got != want {
			t.Errorf("%q is %q, want %q", job, got, want)
		}
	}
}

func TestNoPIDWithoutItsOption(t *testing.T) {
	c := New(Options{})
	c.Set(reporttest.TorchSnapshot(), Own{})
	for _, x := range scrape(t, c) {
		if _, has := x.labels["pid"]; has || x.labels["comm"] != "" {
			t.Errorf("%s has %v", x.name, x.labels)
		}
	}
}

func TestProcessesWithoutAWorkloadShareARow(t *testing.T) {
	s := fleet(5, func(_ int, p *ledger.Process) { p.Workload = ledger.Workload{} })
	c := New(Options{})
	c.Set(s, Own{})
	if got, n := scrape(t, c).of("vramprof_memory_bytes", "plane=driver", "pod=", "hpc_job="); got != 5<<20 || n != 1 {
		t.Errorf("%.0f in %d series", got, n)
	}
}

// TestCountersNeverGoDown plays books whose processes come, change GPUs, end and leave.
func TestCountersNeverGoDown(t *testing.T) {
	c := New(Options{})
	before := map[string]float64{}
	for step := range 40 {
		s := fleet(20, func(i int, p *ledger.Process) {
			p.Workload = ledger.Workload{}
			x := &p.Totals[0]
			x.AllocObjects = uint64((step + 1) * (i + 1))
			x.AllocBytes = x.AllocObjects << 20
			if (step+i)%7 == 0 { // it is not known any more where it was
				p.Devices, x.Device = nil, ledger.UnknownDevice
			}
		})
		gone := step / 3 % 20
		s.Processes, s.Sites, s.Balances = s.Processes[gone:], nil, nil
		c.Set(s, Own{})
		for _, x := range scrape(t, c) {
			if !strings.HasSuffix(x.name, "_total") {
				continue
			}
			key := x.name + fmt.Sprint(slices.Sorted(maps.Values(x.labels)))
			if x.value < before[key] {
				t.Fatalf("step %d: %s went from %v to %v", step, key, before[key], x.value)
			}
			before[key] = x.value
		}
	}
}

func TestAnAllocationCountsOnceWhenItsGPUBecomesKnown(t *testing.T) {
	c := New(Options{})
	for _, device := range []int32{ledger.UnknownDevice, 0, 0} {
		c.Set(fleet(1, func(_ int, p *ledger.Process) {
			p.Totals[0].Device = device
			if device < 0 {
				p.Devices = []string{"GPU-a", "GPU-b"}
			}
		}), Own{})
	}
	if got, _ := scrape(t, c).of("vramprof_allocated_bytes_total"); got != 3<<20 {
		t.Errorf("%.0f bytes are counted, want 3 MiB", got)
	}
}

func TestProcessesThatCameAndLeftUnseenAreCounted(t *testing.T) {
	c := New(Options{})
	c.Set(fleet(1, nil), Own{}) // its process is seen, and leaves with another one
	s := fleet(0, nil)
	s.Forgotten = ledger.Forgotten{Processes: 2, Failures: 4, OutOfMemory: 1, Sums: []ledger.ForgottenSum{
		{UUID: "GPU-a", Kind: ledger.Device, AllocObjects: 10, AllocBytes: 10 << 20, FreeObjects: 9, FreeBytes: 9 << 20},
		{UUID: "GPU-a", Kind: ledger.Module, AllocObjects: 8},
	}}
	for range 2 {
		x := *s
		c.Set(&x, Own{})
	}
	list := scrape(t, c)
	for _, x := range []struct {
		name, label string
		want        float64
	}{
		{"vramprof_allocations_total", "UUID=GPU-a", 7}, {"vramprof_frees_total", "UUID=GPU-a", 7},
		{"vramprof_allocation_failures_total", "error=other", 4}, {"vramprof_out_of_memory_total", "pod=", 1}, {"vramprof_forgotten_processes_total", "", 2},
	} {
		with := []string{x.label}
		if x.label == "" {
			with = nil
		}
		if got, _ := list.of(x.name, with...); got != x.want {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
}

func TestABeginThatMovesBackIsTheSameProcess(t *testing.T) {
	c := New(Options{})
	for _, begin := range []uint64{50, 40} {
		c.Set(fleet(1, func(_ int, p *ledger.Process) { p.Begin = begin }), Own{})
	}
	if got, _ := scrape(t, c).of("vramprof_allocations_total"); got != 3 {
		t.Errorf("%v allocations, want 3", got)
	}
}

func TestWhatEndedHasNoMemoryButItsCounters(t *testing.T) {
	s := fleet(2, nil)
	s.Processes[1].End = 90
	s.Balances = s.Balances[:1]
	c := New(Options{})
	c.Set(s, Own{})
	list := scrape(t, c)
	if got, n := list.of("vramprof_memory_bytes", "pod=pod-1"); n != 0 {
		t.Errorf("it holds %v", got)
	}
	if got, _ := list.of("vramprof_allocations_total", "pod=pod-1"); got != 3 {
		t.Errorf("%v allocations", got)
	}
}

func TestFailuresAndOutOfMemoryAreCountedByPod(t *testing.T) {
	s := fleet(2, nil)
	s.Failures = []ledger.Failure{{Process: 1, Kind: ledger.Device, Result: 2, Count: 3}, {Process: 1, Kind: ledger.Device, Result: -12345, Count: 1}, {Process: 1, Kind: ledger.Device, Result: 54321, Count: 1}}
	s.Processes[1].OOM = &ledger.OOM{Count: 2}
	c := New(Options{})
	c.Set(s, Own{})
	list := scrape(t, c)
	for _, x := range []struct {
		name, label string
		want        float64
	}{
		{"vramprof_allocation_failures_total", "error=out of memory", 3},
		{"vramprof_allocation_failures_total", "error=other", 2},
		{"vramprof_out_of_memory_total", "UUID=GPU-a", 2},
	} {
		if got, n := list.of(x.name, x.label, "pod=pod-1"); got != x.want || n != 1 {
			t.Errorf("%s{%s}: %v in %d series, want %v", x.name, x.label, got, n, x.want)
		}
	}
}

func TestALeakHasItsLinesBytesAndRate(t *testing.T) {
	s := reporttest.Snapshot()
	c := New(Options{Verdicts: afterJudging(s)})
	c.Set(s, Own{})
	list := scrape(t, c)
	lines, _ := list.of("vramprof_verdict_lines", "verdict=leaking", "pod=llama-0")
	bytes, _ := list.of("vramprof_verdict_bytes", "verdict=leaking", "pod=llama-0")
	rate, _ := list.of("vramprof_growth_bytes_per_second", "verdict=leaking", "pod=llama-0")
	if lines != 1 || bytes != float64(2000*reporttest.MiB) || rate < float64(15*reporttest.MiB) || rate > float64(25*reporttest.MiB) {
		t.Errorf("%v lines, %v bytes, %v bytes per second", lines, bytes, rate)
	}
}

func TestAPanicOfVerdictsIsCounted(t *testing.T) {
	c := New(Options{Verdicts: afterJudging(&ledger.Snapshot{Sites: []ledger.Site{{Process: 7}}})})
	c.Set(&ledger.Snapshot{}, Own{})
	if got, n := scrape(t, c).of("vramprof_internal_errors_total"); got < 1 || n != 1 {
		t.Errorf("%v errors in %d series", got, n)
	}
}
