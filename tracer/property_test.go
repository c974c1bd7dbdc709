// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/probes"
)

// account is what a process holds: by "GPU 2 array" or "host pinned", without what is 0.
type account map[string]fakecuda.Count

func (a account) add(place, kind string, c fakecuda.Count) {
	if c == (fakecuda.Count{}) {
		return
	}
	sum := a[place+" "+kind]
	a[place+" "+kind] = fakecuda.Count{Objects: sum.Objects + c.Objects, Bytes: sum.Bytes + c.Bytes}
}

// accountOf is what the machine itself says.
func accountOf(p *fakecuda.Process) account {
	a := account{}
	a.add("host", "pinned", p.Pinned)
	a.add("host", "pinned", p.VMMHost)
	a.add("host", "registered", p.Registered)
	for i, g := range p.GPUs {
		place := fmt.Sprint("GPU ", i)
		for kind, c := range map[string]fakecuda.Count{
			"device": g.Device, "managed": g.Managed, "async": g.Async, "vmm": g.VMM, "array": g.Array, "imported": g.Imported, "graph": g.Graph,
		} {
			a.add(place, kind, c)
		}
	}
	return a
}

// physical names the GPU that an ordinal of a process means.
func physical(s *ledger.Snapshot, p *ledger.Process, device int32, kind ledger.Kind) string {
	switch {
	case kind.OnHost():
		return "host"
	case device < 0:
		return "unknown"
	case int(device) >= len(p.Devices):
		return fmt.Sprintf("cuda:%d", device)
	}
	for i, uuid := range devicesOf(s) {
		if uuid == p.Devices[device] {
			return fmt.Sprint("GPU ", i)
		}
	}
	return fmt.Sprintf("cuda:%d %q", device, p.Devices[device])
}

// devicesOf lists what the machine has accounts of: its GPUs or, if they are divided, their
// instances.
func devicesOf(s *ledger.Snapshot) (uuids []string) {
	divided := slices.ContainsFunc(s.GPUs, func(g ledger.GPU) bool { return g.Parent != "" })
	for _, g := range s.GPUs {
		if divided == (g.Parent != "") {
			uuids = append(uuids, g.UUID)
		}
	}
	return uuids
}

// processOf returns the newest process with a pid, and its number.
func processOf(t *testing.T, s *ledger.Snapshot, pid uint32) (*ledger.Process, int) {
	t.Helper()
	for i := len(s.Processes) - 1; i >= 0; i-- {
		if s.Processes[i].PID == pid {
			return &s.Processes[i], i
		}
	}
	t.Fatalf("process %d is not in the books", pid)
	return nil, 0
}

// booked is what the books say: of the totals, which the sites must add up to.
func booked(t *testing.T, s *ledger.Snapshot, pid uint32) account {
	t.Helper()
	totals, sites := account{}, account{}
	p, index := processOf(t, s, pid)
	for _, x := range p.Totals {
		totals.add(physical(s, p, x.Device, x.Kind), kindWords[x.Kind], fakecuda.Count{Objects: x.LiveObjects, Bytes: x.LiveBytes})
		if x.LiveObjects > x.AllocObjects || x.LiveBytes > x.AllocBytes || x.PeakBytes < x.LiveBytes || x.PeakBytes > x.AllocBytes {
			t.Errorf("process %d: impossible total %+v", pid, x)
		}
	}
	for _, x := range s.Sites {
		if x.Process == index {
			sites.add(physical(s, p, x.Device, x.Kind), kindWords[x.Kind], fakecuda.Count{Objects: x.LiveObjects, Bytes: x.LiveBytes})
		}
	}
	if !maps.Equal(totals, sites) {
		t.Errorf("process %d: totals are %v, sites add up to %v", pid, totals, sites)
	}
	return totals
}

// compareAccounts fails the test for each kind and place that differs.
func compareAccounts(t *testing.T, what string, got, want account) {
	t.Helper()
	keys := slices.Concat(slices.Collect(maps.Keys(got)), slices.Collect(maps.Keys(want)))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if got[key] != want[key] {
			t.Errorf("%s: %s: the books have %d of %d bytes, the machine %d of %d bytes", what, key,
				got[key].Objects, got[key].Bytes, want[key].Objects, want[key].Bytes)
		}
	}
}

const page = 2 << 20

// checkGap compares what NVML reports for a process with what the books explain. The
// rest must be what graphs do not hold yet.
func checkGap(t *testing.T, what string, s *ledger.Snapshot, pid uint32, machine *fakecuda.Process, threads int) {
	t.Helper()
	_, index := processOf(t, s, pid)
	for i, g := range machine.GPUs {
		at := slices.IndexFunc(s.Balances, func(b ledger.Balance) bool { return b.Process == index && b.UUID == s.GPUs[i].UUID })
		if at < 0 {
			t.Errorf("%s: NVML does not list it on GPU %d", what, i)
			continue
		}
		b := s.Balances[at]
		live := g.Device.Bytes + g.Async.Bytes + g.VMM.Bytes + g.Array.Bytes + g.Graph.Bytes
		if b.Usage != g.Usage || b.Live != live || b.Gap != int64(b.Usage-b.Baseline-b.Live-b.Rounding) {
			t.Errorf("%s, GPU %d: %+v, want usage %d, live %d", what, i, b, g.Usage, live)
		}
		if b.Baseline < g.Context || b.Baseline > g.Context+page {
			t.Errorf("%s, GPU %d: baseline %d with a context of %d", what, i, b.Baseline, g.Context)
		}
		kept := g.PoolReserved - g.Async.Bytes
		// The books take frees at their entry and allocations at their return: where threads
		// do both at once, they miss some of what a pool had out at the same time.
		if most := b.Idle + b.Rounding; kept > most && threads == 1 {
			t.Errorf("%s, GPU %d: pools keep %d unused, the books say at most %d", what, i, kept, most)
		}
		most := int64(0) // where the books know what pools had out
		if threads > 1 {
			most = int64(kept)
		}
		if b.Gap > most || b.Gap < -int64(page+g.Graph.Bytes) {
			t.Errorf("%s, GPU %d: gap %d of usage %d, want at most %d", what, i, b.Gap, b.Usage, most)
		}
		t.Logf("%s, GPU %d: usage %d = baseline %d + live %d + rounding %d + gap %d, pools keep %d (at most %d)", what, i, b.Usage, b.Baseline, b.Live, b.Rounding, b.Gap, kept, b.Idle)
	}
}

func checkLosses(t *testing.T, s *ledger.Snapshot) {
	t.Helper()
	if x := s.Stats; x.Lost != 0 || x.UnmatchedFrees != 0 || x.Reused != 0 || x.Evicted != 0 || x.UnknownSizes != 0 {
		t.Errorf("lost %d, unmatched frees %d, reused %d, evicted %d, unknown sizes %d; want none", x.Lost, x.UnmatchedFrees, x.Reused, x.Evicted, x.UnknownSizes)
	}
	for _, w := range s.Warnings {
		t.Error("warning: ", w)
	}
}

// TestRandomCallsOfAllKindsLeaveTheBooksOfTheMachine: three processes of eight threads each, and
// one of one, share memory and make random calls. Whenever they stop, the books are those of the
// machine itself, byte for byte. Meanwhile the probes of wrappers come and go.
func TestRandomCallsOfAllKindsLeaveTheBooksOfTheMachine(t *testing.T) {
	const stops = 8
	calls, seed := 50_000, 1
	for name, value := range map[string]*int{"VRAMPROF_RANDOM_CALLS": &calls, "VRAMPROF_RANDOM_SEED": &seed} {
		if text := os.Getenv(name); text != "" {
			var err error
			if *value, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	m := newMachine(t, 4)
	m.trace(func(c *Config) { c.pace = probes.Pace{Review: 20 * time.Millisecond, Look: 60 * time.Millisecond} })
	count := linksWhile(t)
	var programs []*program
	threads := []int{8, 8, 8, 1}
	each := (calls/3 + 8*stops - 1) / (8 * stops) * (8 * stops)
	for i, visible := range []string{"0,1,2,3", "3,1,0,2", strings.Join(uuidsOf(m), ","), "2,3,1,0"} {
		programs = append(programs, m.start([]string{"CUDA_VISIBLE_DEVICES=" + visible}, m.program("calls_c"),
			"--random", fmt.Sprint(len(threads)*seed+i), fmt.Sprint(each*threads[i]/8),
			"--threads", fmt.Sprint(threads[i]), "--gpus", "4", "--stops", fmt.Sprint(stops), "--share", m.folder, "--wait"))
	}
	ever := []account{{}, {}, {}, {}} // what was live at any stop, of each process
	for stop := range stops + 1 {
		for i, p := range programs {
			if stop < stops {
				p.expect(fmt.Sprint("random stop ", stop))
			} else {
				p.expect(fmt.Sprintf("random %d %d done", len(threads)*seed+i, each*threads[i]/8))
			}
		}
		for _, p := range programs { // they stand still; each has loaded the driver in its first call
			m.loaded(p.pid())
		}
		s := m.snapshot()
		for i, p := range programs {
			what, usage := fmt.Sprintf("stop %d, process %d", stop, i), m.usage(p.pid())
			got := booked(t, s, p.pid())
			compareAccounts(t, what, got, accountOf(&usage))
			checkAllocated(t, what, s, p.pid(), &usage)
			checkGap(t, what, s, p.pid(), &usage, threads[i])
			maps.Copy(ever[i], got)
		}
		checkLosses(t, s)
		checkStacks(t, m, s)
		if t.Failed() {
			t.FailNow()
		}
		for _, p := range programs {
			p.next()
		}
	}
	for i, got := range ever {
		if threads[i] > 1 {
			checkEveryKind(t, fmt.Sprint("process ", i), got)
		}
	}
	if fewest, most := count(); most-fewest < 10 {
		t.Errorf("the tracer had %d to %d links: the probes of wrappers did not come and go", fewest, most)
	} else {
		t.Logf("the tracer had %d to %d links", fewest, most)
	}
}

// checkStacks makes sure that each stack is whole, and begins with the outermost function of CUDA,
// whichever was probed.
func checkStacks(t *testing.T, m *machine, s *ledger.Snapshot) {
	t.Helper()
	mapsShown := map[uint32]bool{}
	for _, site := range s.Sites {
		frames := m.Stack(site.Stack)
		for i, f := range frames {
			if f.Mark || i > 0 && f.Mapping != nil && strings.Contains(f.Mapping.Path, "libcudart") {
				t.Errorf("%s has the stack %v, with the leaf at %#x", site.API, names(frames), frames[0].Address)
				if p := s.Processes[site.Process]; !mapsShown[p.PID] {
					mapsShown[p.PID] = true
					text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID))
					t.Logf("process %d maps\n%s", p.PID, text)
				}
				break
			}
		}
	}
}

func names(frames []callstack.Frame) (list []string) {
	for _, f := range frames {
		list = append(list, f.Function)
	}
	return list
}

// linksWhile counts the tracer's links until the returned function is called.
func linksWhile(t *testing.T) (count func() (fewest, most int)) {
	most := links(t)
	fewest := most
	var wait sync.WaitGroup
	done := make(chan struct{})
	stop := sync.OnceFunc(func() { close(done); wait.Wait() })
	t.Cleanup(stop)
	wait.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
			n := links(t)
			fewest, most = min(fewest, n), max(most, n)
		}
	})
	return func() (int, int) { stop(); return fewest, most }
}

// links counts the BPF links of this process: each probed wrapper has two.
func links(t *testing.T) (n int) {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Error(err)
	}
	for _, fd := range list {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.Contains(to, "bpf_link") || strings.Contains(to, "bpf-link") {
			n++
		}
	}
	return n
}

// checkAllocated compares what was ever allocated, as far as the machine counts it.
func checkAllocated(t *testing.T, what string, s *ledger.Snapshot, pid uint32, machine *fakecuda.Process) {
	t.Helper()
	got, want := account{}, account{}
	p, _ := processOf(t, s, pid)
	for _, x := range p.Totals {
		if x.Kind == ledger.Device || x.Kind == ledger.Managed {
			got.add(physical(s, p, x.Device, x.Kind), "ever", fakecuda.Count{Objects: x.AllocObjects, Bytes: x.AllocBytes})
		}
	}
	for i, g := range machine.GPUs {
		want.add(fmt.Sprint("GPU ", i), "ever", g.Total)
	}
	compareAccounts(t, what, got, want)
}

// checkEveryKind makes sure that the random calls leave no kind out. At any one stop there may be
// none of a rare kind: how the threads take turns is chance.
func checkEveryKind(t *testing.T, what string, got account) {
	t.Helper()
	for kind, word := range kindWords {
		if kind.IsObject() {
			continue // no memory
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(got)), func(key string) bool { return strings.HasSuffix(key, " "+word) }) {
			t.Errorf("%s: nothing of kind %s (%d) was ever live", what, word, kind)
		}
	}
}

// uuidsOf lists the machine's GPUs from the last to the first.
func uuidsOf(m *machine) (uuids []string) {
	for _, g := range m.Snapshot().GPUs {
		uuids = append([]string{g.UUID}, uuids...)
	}
	return uuids
}
