// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// torchTotals is what the toy allocator reports for one device; Since the latest mark of its
// script.
type torchTotals struct {
	Allocated, Reserved, Live, Largest, Peak, Retries, Failures uint64
	Since                                                       struct{ Allocated, Live, Segments, Cached, Largest uint64 }
}

// tensors runs a script by tensors_c, on the toy PyTorch of that version.
func (m *machine) tensors(version string, more []string, lines ...string) *program {
	m.t.Helper()
	return m.start(append(slices.Clone(more), m.fake.Torch(version)), m.program("tensors_c"), m.file(strings.Join(lines, "\n")+"\n"))
}

// follow starts one when the tracer runs, and lets it begin when its unwind tables are loaded.
func (m *machine) follow(version string, more []string, lines ...string) *program {
	m.t.Helper()
	p := m.tensors(version, more, append([]string{"foreign z 1", "foreign_free z", "ready", "wait"}, lines...)...)
	p.ready()
	m.loaded(p.pid())
	p.next()
	return p
}

// loaded waits until the unwind tables of all that a process has mapped so far are there: it stands
// still.
func (m *machine) loaded(pid uint32) {
	m.t.Helper()
	quiet := 0
	m.eventually("the process's unwind tables are loaded", func() bool {
		m.jobs.mu.Lock()
		waits := m.jobs.busy
		for _, x := range []job{{jobLoad, pid}, {jobLoadLater, pid}, {jobScan, pid}, {jobScan, 0}} {
			_, todo := m.jobs.todo[x.kind][x.pid]
			waits = waits || todo
		}
		m.jobs.mu.Unlock()
		pause, traced := m.table.NextLoad(pid)
		if quiet++; waits || !traced || m.table.IsUnloaded(pid) || pause > 0 {
			quiet = 0
		}
		return quiet > 20
	})
}

// keepTorch lets processes hold the libraries of those versions, so that they are probed from the
// beginning.
func (m *machine) keepTorch(versions ...string) {
	m.t.Helper()
	for _, version := range versions {
		m.tensors(version, nil, "ready", "wait").ready()
	}
}

// lines reads what the program prints up to "end".
func (p *program) lines() (list []string) {
	p.t.Helper()
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			p.t.Fatalf("%v printed %q, %v", p.Args, line, err)
		}
		if line = strings.TrimSpace(line); line == "end" {
			return list
		}
		list = append(list, line)
	}
}

// totals reads what "totals" prints, by device.
func (p *program) totals() map[int32]torchTotals {
	p.t.Helper()
	totals := map[int32]torchTotals{}
	for _, line := range p.lines() {
		var device int32
		var x torchTotals
		if _, err := fmt.Sscanf(line, "device %d %d %d %d %d %d %d %d since %d %d %d %d %d", &device, &x.Allocated, &x.Reserved, &x.Live, &x.Largest, &x.Peak,
			&x.Retries, &x.Failures, &x.Since.Allocated, &x.Since.Live, &x.Since.Segments, &x.Since.Cached, &x.Since.Largest); err != nil {
			p.t.Fatalf("%q: %v", line, err)
		}
		totals[device] = x
	}
	return totals
}

// siteCount is what a site has, on one device.
type siteCount struct{ LiveObjects, LiveBytes, AllocObjects, AllocBytes uint64 }

// sites reads what "sites" prints: "site_3 cuda:1".
func (p *program) sites() map[string]siteCount {
	p.t.Helper()
	sites := map[string]siteCount{}
	for _, line := range p.lines() {
		var name string
		var device int32
		var c siteCount
		if _, err := fmt.Sscanf(line, "%s %d %d %d %d %d", &name, &device, &c.LiveObjects, &c.LiveBytes, &c.AllocObjects, &c.AllocBytes); err != nil {
			p.t.Fatalf("%q: %v", line, err)
		}
		sites[fmt.Sprintf("%s cuda:%d", name, device)] = c
	}
	return sites
}

// tensorsOf returns the part of a snapshot that is PyTorch's in a process, by device.
func tensorsOf(t *testing.T, s *ledger.Snapshot, pid uint32) map[int32]ledger.Tensors {
	t.Helper()
	_, index := processOf(t, s, pid)
	list := map[int32]ledger.Tensors{}
	for _, x := range s.Tensors {
		if x.Process == index {
			list[x.Device] = x
		}
	}
	return list
}

// tensorSites sums a process's sites of kind Tensor as sites does; "none": without a stack,
// "other": from elsewhere.
func (m *machine) tensorSites(s *ledger.Snapshot, pid uint32) map[string]siteCount {
	m.t.Helper()
	_, index := processOf(m.t, s, pid)
	sites := map[string]siteCount{}
	for _, x := range s.Sites {
		if x.Process != index || x.Kind != ledger.Tensor {
			continue
		}
		name := "none"
		if x.Stack != 0 {
			name = "other"
		}
		for _, f := range m.Stack(x.Stack) {
			if strings.HasPrefix(f.Function, "site_") {
				name = f.Function
			}
		}
		key := fmt.Sprintf("%s cuda:%d", name, x.Device)
		c := sites[key]
		sites[key] = siteCount{c.LiveObjects + x.LiveObjects, c.LiveBytes + x.LiveBytes, c.AllocObjects + x.AllocObjects, c.AllocBytes + x.AllocBytes}
	}
	return sites
}

// checkTensors wants the books of a process to be the allocator's. blind: it reports no
// totals and no addresses, as before PyTorch 1.10.
func checkTensors(t *testing.T, what string, s *ledger.Snapshot, pid uint32, totals map[int32]torchTotals, blind bool) {
	t.Helper()
	got := tensorsOf(t, s, pid)
	for device, x := range totals {
		g, since := got[device], x.Since
		want := ledger.Tensors{
			Process: g.Process, Device: device, Allocated: x.Allocated, Reserved: x.Reserved,
			LiveObjects: since.Live, LiveBytes: since.Allocated, Segments: since.Segments, Cached: since.Cached, LargestFree: since.Largest,
			Older: x.Allocated - since.Allocated, OlderCached: x.Reserved - x.Allocated - since.Cached,
			AllocObjects: g.AllocObjects, AllocBytes: g.AllocBytes, Sampled: g.Sampled, Halvings: g.Halvings, Error: g.Error,
			Peak: g.Peak, PeakTime: g.PeakTime, Foreign: g.Foreign, OlderFreed: g.OlderFreed, // looked at elsewhere
		}
		if blind {
			want.Allocated, want.Reserved, want.Older, want.OlderCached = 0, 0, 0, 0
			want.Cached, want.LargestFree = since.Segments-min(since.Segments, since.Allocated), g.LargestFree
		}
		if !reflect.DeepEqual(g, want) {
			t.Errorf("%s, cuda:%d: the books have\n%+v, want\n%+v", what, device, g, want)
		}
	}
	for device := range got {
		if _, ok := totals[device]; !ok {
			t.Errorf("%s: there is a device %d", what, device)
		}
	}
}

// checkParts wants all bytes that NVML reports to be explained.
func checkParts(t *testing.T, what string, s *ledger.Snapshot, pid uint32) {
	t.Helper()
	_, index := processOf(t, s, pid)
	for i, p := range s.Parts() {
		if p.Process == index && p.Unexplained+p.Beyond() != 0 {
			t.Errorf("%s: %+v\nof %+v", what, p, s.Balances[i])
		}
	}
}

func compareSites(t *testing.T, what string, got, want map[string]siteCount) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] != want[key] {
			t.Errorf("%s, %s: the books have %+v, the program %+v", what, key, got[key], want[key])
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			t.Errorf("%s: the books have %s: %+v", what, key, got[key])
		}
	}
}
