// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// traced is an event as PyTorch records it: µs of the Unix time, 1 for a block that is given out, 2
// for one that is freed, 0 for one that waits for no stream any more, its address and requested
// size.
type traced [4]uint64

// seen is a walk of a running job: its window in µs of the Unix time, and the live blocks with
// their requested sizes.
type seen struct {
	from, to uint64
	exact    bool
	live     map[uint64]uint64
}

func (e traced) apply(to map[uint64]uint64) {
	switch e[1] {
	case 1:
		to[e[2]] = e[3]
	case 0:
		delete(to, e[2])
	}
}

// walkRunning walks a job until it ends, and returns the walks whose ends saw the lock free.
func walkRunning(t *testing.T, pid int, ended <-chan struct{}) (walks []seen) {
	p, err := peek.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	offset := uint64(time.Now().UnixNano()) - clock.Now()
	var layouts Layouts
	a := layouts.New(p)
	all, held, linked, bounded := 0, 0, 0, 0
	refused := map[string]int{}
	for {
		select {
		case <-ended:
			t.Logf("%d walks, %d of them with the lock held, %d others kept, %d blocks by their neighbors, %d walks with the bounds of all segments; refused: %v", all, held, len(walks), linked, bounded, refused)
			return walks
		default:
		}
		s, err := a.Walk(1)
		if err != nil {
			refused[err.Error()]++ // it moves while the layout is looked for
			continue
		}
		all++
		d := s.Devices[0]
		linked += d.Linked
		if d.Bounded {
			bounded++
		}
		if !d.LockFree {
			held++
			continue
		}
		w := seen{from: (d.From + offset) / 1000, to: (d.To + offset) / 1000, exact: d.Exact, live: map[uint64]uint64{}}
		for _, b := range s.Blocks {
			if b.State == Active || b.State == PendingFree {
				w.live[b.Address] = b.Requested
			}
		}
		walks = append(walks, w)
		time.Sleep(5 * time.Millisecond)
	}
}

// TestAWalkWithTheEventsOfItsWindowIsExact compares walks of a job that allocates without a pause
// with what PyTorch recorded: a walk whose ends saw the lock free, with the last event of each
// address of its window. Few walks may lack a block that is all of its segment, and that the table
// of active blocks moved while it was read.
func TestAWalkWithTheEventsOfItsWindowIsExact(t *testing.T) {
	root, folder := realtorch.Prepare(t), t.TempDir()
	cmd := root.Command(root.Env(t, 1, 8<<30), "running.py", folder, "3000", "3")
	out, _ := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "running" {
		t.Fatalf("the job says %q", lines.Text())
	}
	ended := make(chan struct{})
	time.AfterFunc(2800*time.Millisecond, func() { close(ended) })
	walks := walkRunning(t, cmd.Process.Pid, ended)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "events.json"))
	if err != nil {
		t.Fatal(err)
	}
	var events []traced
	if err := json.Unmarshal(text, &events); err != nil {
		t.Fatal(err)
	}
	if len(walks) < 10 || len(events) < 5000 {
		t.Fatalf("only %d walks and %d events", len(walks), len(events))
	}
	compareRunning(t, walks, events)
}

// compareRunning replays the events up to the end of each window, over nothing and over the walk.
func compareRunning(t *testing.T, walks []seen, events []traced) {
	const slack = 2000 // µs that PyTorch's clock may be off
	state := map[uint64]uint64{}
	done, wrong, missed, exact, torn, most := 0, 0, 0, 0, 0, 0
	for _, w := range walks {
		for ; done < len(events) && events[done][0] <= w.to+slack; done++ {
			events[done].apply(state)
		}
		alone := maps.Equal(w.live, state)
		first := sort.Search(len(events), func(i int) bool { return events[i][0] >= w.from-slack })
		for _, e := range events[first:done] {
			e.apply(w.live)
		}
		most = max(most, done-first)
		if w.exact {
			exact++
		}
		if !alone {
			torn++
		}
		if !maps.Equal(w.live, state) {
			if !w.exact && lacksOne(w.live, state) {
				missed++
				continue
			}
			wrong++
			for at, size := range w.live {
				if state[at] != size {
					t.Logf("read %#x of %d bytes, want %d; its events: %v", at, size, state[at], around(events, at, w))
				}
			}
			t.Errorf("a walk of %d µs with %d events (exact: %v) has %d blocks, PyTorch %d", w.to-w.from, done-first, w.exact, len(w.live), len(state))
		}
	}
	if missed*100 > len(walks) {
		t.Errorf("%d of %d walks lack a block", missed, len(walks))
	}
	t.Logf("%d walks and %d events: %d exact alone, %d other than the end of their window, %d events in a window at most; with the events %d wrong, %d without a block", len(walks), len(events), exact, torn, most, wrong, missed)
}

// lacksOne reports whether the blocks of a walk are those of a state except for one.
func lacksOne(live, state map[uint64]uint64) bool {
	for address, size := range live {
		if state[address] != size {
			return false
		}
	}
	return len(live)+1 == len(state)
}

// around returns the events of an address near a window, with times in µs since its begin.
func around(events []traced, address uint64, w seen) (near []traced) {
	for _, e := range events {
		if e[2] == address && e[0] > w.from-200_000 && e[0] < w.to+200_000 {
			near = append(near, traced{e[0] - w.from, e[1], e[2], e[3]})
		}
	}
	return near
}
