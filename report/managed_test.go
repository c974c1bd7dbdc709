// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// managedSnapshot: a process with 2 GiB on a GPU and 60 GiB of managed memory, of which NVML has none in its figure.
func managedSnapshot() *ledger.Snapshot {
	const gpu = "GPU-1a2b3c4d-0000-0000-0000-000000000000"
	l := ledger.New(ledger.Options{Begin: second})
	l.Tell(ledger.GPUs{{UUID: gpu, Total: 80 << 30, Used: 3 << 30}})
	l.Tell(ledger.Process{PID: 7, Comm: "solver", Begin: second, Devices: []string{gpu}})
	l.Tell(ledger.UsageReading{Time: second, Usages: []ledger.Usage{{PID: 7, UUID: gpu, Bytes: 300 * mib}}})
	for i, e := range []ledger.Event{
		{Kind: ledger.Device, Size: 2 << 30, API: "cudaMalloc", Stack: 2},
		{Kind: ledger.Managed, Size: 60 << 30, API: "cudaMallocManaged", Stack: 2},
	} {
		e.Op, e.PID, e.Address, e.Time = ledger.Alloc, 7, uint64(i+1)<<40, 2*second
		l.Apply(&e)
	}
	l.Tell(ledger.UsageReading{Time: 3 * second, Usages: []ledger.Usage{{PID: 7, UUID: gpu, Bytes: 2348 * mib}}})
	return l.Snapshot(4*second, time.Unix(1_790_000_000, 0))
}

func TestManagedMemoryIsInTheSumOfNoGPU(t *testing.T) {
	s := managedSnapshot()
	if b := s.Balances[0]; b.Live != 2<<30 || b.Gap != 0 {
		t.Errorf("balance %+v, want 2 GiB live and no gap", b)
	}
	if p := s.Parts()[0]; p.Driver != 2<<30 || p.Unexplained != 0 {
		t.Errorf("parts %+v, want 2 GiB of driver memory and nothing unexplained", p)
	}
	sum := map[string]int64{}
	for _, h := range Holdings(s) {
		if h.Apart() {
			sum["apart"] += h.Live
		}
		sum[h.Plane] += h.Live
		if h.Plane == PlaneManaged && (h.UUID != s.GPUs[0].UUID || h.Device != 0) {
			t.Errorf("managed memory is of %q, device %d, want the GPU that it was allocated for", h.UUID, h.Device)
		}
	}
	if sum[PlaneManaged] != 60<<30 || sum["apart"] != 60<<30 || sum[PlaneDriver] != 2<<30 || sum[PlaneUnexplained] != 0 {
		t.Errorf("planes %v, want 60 GiB managed apart from 2 GiB of driver memory", sum)
	}
}

func TestProfilesOfGPUsHaveNoManagedMemory(t *testing.T) {
	p := parsed(t, managedSnapshot(), testStacks())
	var inuse, managed uint64
	for _, x := range p.Sample {
		inuse += uint64(x.Value[3])
		if x.Label["plane"][0] == PlaneManaged {
			managed += uint64(x.Value[5])
			if x.Label["kind"][0] != "managed" || x.Label["device"][0] != "cuda:0" || x.Value[1] != 60<<30 {
				t.Errorf("a sample of managed memory has labels %v and values %v", x.Label, x.Value)
			}
		}
	}
	if inuse != 2348*mib || managed != 60<<30 {
		t.Errorf("inuse_space has %d bytes, want NVML's %d; host_space has %d of managed memory, want 60 GiB", inuse, 2348*mib, managed)
	}
	if text := strings.Join(p.Comments, "\n"); !strings.Contains(text, "managed memory is in host_space too, as NVML counts it for no process: 1 allocation, 60.0 GiB") {
		t.Errorf("no comment on managed memory in\n%s", text)
	}
}

func TestManagedMemoryIsReportedBesideTheGPUs(t *testing.T) {
	s, st := managedSnapshot(), testStacks()
	var b bytes.Buffer
	if err := WriteLeaks(&b, s, st, Options{}, Screen{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nLive GPU memory: 2.00 GiB in 1 allocation from 1 site\n", "\nLive managed memory: 60.0 GiB in 1 allocation from 1 site\n",
		"\nManaged memory is in no GPU's sum: NVML counts it for no process.\n", "\nCUDA allocations                     2.00 GiB\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if r := newLeaksReport(s, st, Options{}); r.ManagedBytes != 60<<30 || r.ManagedCount != 1 || r.HostBytes != 0 || r.Sites[1].Plane != PlaneManaged {
		t.Errorf("JSON: %d managed bytes of %d, %d of the host, sites %+v", r.ManagedBytes, r.ManagedCount, r.HostBytes, r.Sites)
	}
	for _, r := range planeReports(s) {
		if r.Plane == PlaneManaged && (r.ApartBytes != 60<<30 || r.Bytes != 0 || r.HostBytes != 0) {
			t.Errorf("plane %+v, want 60 GiB apart", r)
		}
	}
}
