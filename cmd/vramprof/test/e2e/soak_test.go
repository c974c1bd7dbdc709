// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

// soakVariable names the variable with the duration of the load ("30m"), see scripts/soak.sh.
const soakVariable = "VRAMPROF_SOAK"

// soakSample is what the tracer holds at one moment. targets are the running ones.
type soakSample struct {
	vitals
	targets int
}

// settle is the time in which the tracer frees processes that ended: it forgets them after five
// seconds, twice that if the last ones ended in the meantime, and more on a busy machine.
const settle = 11 * time.Second

// TestSoak loads a session with targets of all kinds that start and exit, lets all of them end, and
// repeats that for longer. After the second time, the tracer must hold what it held after the
// first, when its caches were warm. Each target must end as it would without a tracer, and the
// results must be readable and match the targets' operations.
func TestSoak(t *testing.T) {
	if os.Getenv(soakVariable) == "" {
		t.Skip("run by scripts/soak.sh")
	}
	length, err := time.ParseDuration(os.Getenv(soakVariable))
	if err != nil {
		t.Fatal(err)
	}
	every := min(max(length/400, time.Second), 5*time.Second)
	warm := min(length/2, time.Minute)
	dir := setupAlone(t)
	load := newSoakLoad(t, dir)
	folder := t.TempDir()
	s := start(t, load.env, "record", "--name", "^"+load.prefix, "-o", filepath.Join(folder, "soak.vram"), "-f", "capture", "-f", "pprof", "--oom-dir", t.TempDir())
	s.path = filepath.Join(folder, "soak.pb.gz")
	s.ready()
	t.Logf("tracer %d", s.cmd.Process.Pid)

	watch := startSoakWatch(t, s, load, every)
	load.run(warm)
	time.Sleep(settle)
	before := watch.mark()
	load.run(length)
	time.Sleep(settle / 2)
	after := watch.mark()
	for end := time.Now().Add(2 * settle); len(soakVerdict(before, after, load.ended(), length)) > 0 && time.Now().Before(end); {
		time.Sleep(time.Second)
		after = watch.mark()
	}
	watch.end()
	s.stop()
	s.checkCalm()
	for _, fault := range load.faults {
		t.Error(fault)
	}
	t.Logf("targets by kind: %v", load.counts())
	t.Log(soakTable(watch.samples))
	for _, reason := range soakVerdict(before, after, load.ended(), length) {
		t.Error("grew: " + reason)
	}
	checkSoakRecords(t, s, folder)
}

// checkSoakRecords reads the results of the session and prints their own counts.
func checkSoakRecords(t *testing.T, s *session, folder string) {
	t.Helper()
	p := s.profile()
	r := openCapture(t, filepath.Join(folder, "soak.vram"))
	snapshot := replay(t, r)
	var allocated, live uint64
	for i := range snapshot.Processes {
		for _, x := range snapshot.Processes[i].Totals {
			allocated += x.AllocObjects
			live += x.LiveObjects
		}
	}
	stats := snapshot.Stats
	t.Logf("%d processes, %d allocations, %d sites, %d samples; lost %d of %d events, without stack %d of %d, truncated %v, torn %d, evicted %d; profile %s, capture %s",
		len(snapshot.Processes), allocated, len(snapshot.Sites), len(p.Sample), stats.Lost, stats.Events, stats.NoStack, stats.Stacks, stats.Truncated, stats.Torn, stats.Evicted,
		sizeOf(s.path), sizeOf(filepath.Join(folder, "soak.vram")))
	stackless := map[string]uint64{}
	for _, x := range snapshot.Sites {
		if x.Stack == 0 {
			stackless[fmt.Sprint(snapshot.Processes[x.Process].Comm, " ", x.API)] += x.AllocObjects
		}
	}
	t.Logf("allocations without a stack, by program: %v", stackless)
	for _, w := range snapshot.Warnings {
		t.Log("warning: ", w)
	}
	if allocated == 0 || len(p.Sample) == 0 {
		t.Error("nothing was recorded")
	}
	text := s.stdout.String()
	if stats.Lost > 0 && !strings.Contains(text, fmt.Sprint(stats.Lost)) && !strings.Contains(text, "lost") {
		t.Errorf("%d events were lost, and the summary does not mention it:\n%s", stats.Lost, text)
	}
	checkNamed(t, p)
}

// checkNamed checks that the profile contains the programs' own functions.
func checkNamed(t *testing.T, p *profile.Profile) {
	t.Helper()
	found := map[string]bool{}
	for _, f := range p.Function {
		found[f.Name] = true
	}
	for _, name := range []string{"level1", "once", "device_malloc", "main"} {
		if !found[name] {
			t.Errorf("the profile has no function %s", name)
		}
	}
}

func sizeOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%.1f MiB", float64(info.Size())/mib)
}

// soakColumns lists what is watched, and how much each may grow. A file that is open at the moment,
// or a thread that Go keeps, is not a leak; the libraries installed last, three links each, stay
// probed for the next process.
var soakColumns = []struct {
	name  string
	of    func(soakSample) int64
	slack int64
}{
	{"RSS, MiB", func(s soakSample) int64 { return s.rss >> 20 }, 0}, // see soakVerdict
	{"files", func(s soakSample) int64 { return int64(s.files) }, 12},
	{"threads", func(s soakSample) int64 { return int64(s.threads) }, 4},
	{"BPF maps", func(s soakSample) int64 { return int64(s.maps) }, 1},
	{"BPF programs", func(s soakSample) int64 { return int64(s.progs) }, 0},
	{"links", func(s soakSample) int64 { return int64(s.link) }, 6},
	{"kernel maps, MiB", func(s soakSample) int64 { return s.kernel >> 20 }, 16},
}

func soakTable(samples []soakSample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d samples\n%-18s %8s %8s %8s %8s %8s\n", len(samples), "", "min", "median", "max", "first", "last")
	for _, c := range soakColumns {
		var list []int64
		for _, s := range samples {
			list = append(list, c.of(s))
		}
		first, last := list[0], list[len(list)-1]
		slices.Sort(list)
		fmt.Fprintf(&b, "%-18s %8d %8d %8d %8d %8d\n", c.name, list[0], list[len(list)/2], list[len(list)-1], first, last)
	}
	return b.String()
}

// The books keep a row and the stacks of each process that ended, since a capture shows them: 2 KB.
// With garbage, that is at most perEnded bytes, plus a share of the total that Go's collector
// leaves.
const (
	perEnded    = 6 << 10
	mostOfEnded = 128 << 20
	rssSlack    = 48 << 20
)

// soakVerdict compares what the tracer held without targets, before the load and after it.
func soakVerdict(before, after soakSample, ended int, length time.Duration) (reasons []string) {
	for _, c := range soakColumns[1:] {
		if b, a := c.of(before), c.of(after); a > b+c.slack {
			reasons = append(reasons, fmt.Sprintf("%s: %d before, %d after, %.1f per minute", c.name, b, a, float64(a-b)/math.Max(length.Minutes(), 0.1)))
		}
	}
	allowed := before.rss + before.rss/4 + rssSlack + min(int64(ended)*perEnded, mostOfEnded)
	if after.rss > allowed {
		reasons = append(reasons, fmt.Sprintf("RSS: %d MiB before, %d after, %d allowed with %d processes that ended", before.rss>>20, after.rss>>20, allowed>>20, ended))
	}
	return reasons
}

// soakWatch takes samples until it ends.
type soakWatch struct {
	take    func() soakSample
	samples []soakSample
	stop    chan struct{}
	done    chan struct{}
}

func startSoakWatch(t *testing.T, s *session, load *soakLoad, every time.Duration) *soakWatch {
	w := &soakWatch{stop: make(chan struct{}), done: make(chan struct{})}
	began := time.Now()
	w.take = func() soakSample { return soakSample{vitalsOf(s.cmd.Process.Pid), load.running()} }
	go func() {
		defer close(w.done)
		for n := 0; ; n++ {
			select {
			case <-w.stop:
				return
			case <-time.After(every):
			}
			x := w.take()
			w.samples = append(w.samples, x)
			if n%12 == 0 {
				t.Logf("%6v  %2d targets: %v", time.Since(began).Round(time.Second), x.targets, x.vitals)
			}
		}
	}()
	return w
}

// mark returns the minimum within a few seconds: a garbage collection or a reading of NVML may be
// running.
func (w *soakWatch) mark() soakSample {
	least := w.take()
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		x := w.take()
		for _, part := range []struct{ a, b *int }{
			{&least.files, &x.files}, {&least.threads, &x.threads}, {&least.maps, &x.maps}, {&least.progs, &x.progs}, {&least.link, &x.link},
		} {
			*part.a = min(*part.a, *part.b)
		}
		least.rss, least.kernel = cmp.Or(min(least.rss, x.rss), x.rss), min(least.kernel, x.kernel)
	}
	return least
}

func (w *soakWatch) end() {
	close(w.stop)
	<-w.done
}
