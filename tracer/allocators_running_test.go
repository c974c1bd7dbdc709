// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

// readings collects what allocators were read to have.
type readings struct {
	mu   sync.Mutex
	list []ledger.AllocatorReading
}

func (*readings) Apply(*ledger.Event) {}

func (r *readings) Tell(in ledger.Input) {
	if x, ok := in.(ledger.AllocatorReading); ok {
		r.mu.Lock()
		r.list = append(r.list, x)
		r.mu.Unlock()
	}
}

// settled returns how many of them were settled by reports.
func (r *readings) settled() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.list {
		if r.list[i].Devices[0].Settled {
			n++
		}
	}
	return n
}

// running is testdata/realtorch/running.py, which allocates without a pause.
type running struct {
	pid  int
	file string
	wait func() error
}

func (m *torchMachine) running(live, seconds string) running {
	m.t.Helper()
	folder := m.t.TempDir()
	env := m.root.Env(m.t, 1, 8<<30)
	for _, v := range m.env {
		if strings.HasPrefix(v, "FAKECUDA_") {
			env = append(env, v)
		}
	}
	cmd := m.root.Command(append(env, "PYTHON_COMM="+m.name), "running.py", folder, live, seconds)
	out, _ := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "running" {
		m.t.Fatalf("the job says %q", lines.Text())
	}
	return running{cmd.Process.Pid, filepath.Join(folder, "events.json"), cmd.Wait}
}

// told is an event as PyTorch records it: µs of the Unix time, 1 for a block that is given out, 0
// or 2 for one that is freed, its address and requested size.
type told [4]uint64

func (e told) apply(to map[uint64]bool) {
	if e[1] == 1 {
		to[e[2]] = true
	} else {
		delete(to, e[2])
	}
}

// events returns what the job recorded, when it has ended.
func (j running) events(t *testing.T) (list []told) {
	t.Helper()
	if err := j.wait(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(j.file)
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil || len(list) < 5000 {
		t.Fatalf("%d events, %v", len(list), err)
	}
	return list
}

// TestAllocatorsThatAreNeverAtRestAreSettled: each settled reading of a job that allocates without
// a pause, and is older than the session, has the live blocks that PyTorch itself recorded at one
// moment, whichever tensors were sampled.
func TestAllocatorsThatAreNeverAtRestAreSettled(t *testing.T) {
	m := newTorchMachine(t, 1)
	for name, sample := range map[string]uint64{"every stack": 0, "sampled": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			j := m.running("900", "9")
			var got readings
			single := *m.machine
			single.trace(func(c *Config) { c.Name, c.PIDs, c.Sample, c.Capture = nil, []uint32{uint32(j.pid)}, sample, &got })
			for end := time.Now().Add(6 * time.Second); time.Now().Before(end) && got.settled() < 10; {
				single.Tracer.snapshots.scanner.Last(t.Context())
			}
			events := j.events(t)
			offset := uint64(time.Now().UnixNano()) - clock.Now()
			settled, exact, older := 0, 0, 0
			for _, r := range got.list {
				if d := &r.Devices[0]; d.Exact {
					exact++
					continue
				} else if !d.Settled {
					continue
				}
				settled++
				live := map[uint64]bool{}
				for i := range r.Blocks {
					if b := &r.Blocks[i]; b.State == caching.Active {
						live[b.Address] = true
						if b.Older {
							older++
						}
					}
				}
				if least := leastApart(events, (r.Time+offset)/1000, live); least > 0 {
					t.Errorf("a settled reading differs from PyTorch's record by %d blocks at least", least)
				}
			}
			t.Logf("%d readings: %d at rest, %d settled; %d older blocks in these", len(got.list), exact, settled, older)
			if settled < 3 || older < 40*settled {
				t.Errorf("only %d of %d readings are settled, with %d older blocks", settled, len(got.list), older)
			}
		})
	}
}

// leastApart returns by how many blocks the recorded state differs from live at least, near a time.
func leastApart(events []told, at uint64, live map[uint64]bool) int {
	const slack = 2000 // µs that the clocks may be apart
	state := map[uint64]bool{}
	first := sort.Search(len(events), func(i int) bool { return events[i][0] >= at-slack })
	for _, e := range events[:first] {
		e.apply(state)
	}
	least := 1 << 30
	for i := first; i < len(events) && events[i][0] <= at+slack; i++ {
		events[i].apply(state)
		apart := 0
		for address := range live {
			if !state[address] {
				apart++
			}
		}
		for address := range state {
			if !live[address] {
				apart++
			}
		}
		least = min(least, apart)
	}
	return least
}
