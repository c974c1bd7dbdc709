// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

// blocksJob is testdata/realtorch/blocks.py, which writes what PyTorch itself has at each point.
type blocksJob struct {
	pid    int
	file   string
	points *bufio.Scanner
	in     io.Writer
}

func (m *torchMachine) blocks(setting string) *blocksJob {
	m.t.Helper()
	folder := m.t.TempDir()
	env := append(m.root.Env(m.t, 1, 1<<30), setting)
	for _, v := range m.env {
		if strings.HasPrefix(v, "FAKECUDA_") {
			env = append(env, v)
		}
	}
	cmd := m.root.Command(append(env, "PYTHON_COMM="+m.name), "blocks.py", folder, "6")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	return &blocksJob{cmd.Process.Pid, filepath.Join(folder, "truth.json"), bufio.NewScanner(out), in}
}

// next returns what PyTorch has at the next point, by device.
func (j *blocksJob) next(t *testing.T) [2]caching.Cache {
	t.Helper()
	if !j.points.Scan() {
		t.Fatal("the job has ended")
	}
	var truth struct {
		Segments []struct {
			Device int
			Pool   caching.PoolID `json:"segment_pool_id"`
			Stream uint64
			Size   uint64 `json:"total_size"`
			Blocks []struct {
				Size  uint64
				State string
			}
		}
	}
	text, err := os.ReadFile(j.file)
	if err == nil {
		err = json.Unmarshal(text, &truth)
	}
	if err != nil {
		t.Fatal(err)
	}
	var list [2]caching.Cache
	for _, g := range truth.Segments {
		c, free, live := &list[g.Device], uint64(0), false
		c.Reserved += g.Size
		for _, b := range g.Blocks {
			switch b.State {
			case "active_allocated":
				c.Allocated += b.Size
				live = true
			case "inactive":
				free += b.Size
				c.LargestFree = max(c.LargestFree, b.Size)
			default:
				c.Pending += b.Size
				live = true
			}
		}
		switch {
		case g.Pool.Private():
			c.Private += free
		case !live:
			c.Idle += free
		}
		c.Cached += free
	}
	for i := range list {
		list[i].Cached += list[i].Pending
	}
	return list
}

// TestAnAllocatorIsReadFromOutsideFromTheAttachOn: the caches of a process that is older than the
// tracer are those that PyTorch itself has, with pools and streams, at the attach and later.
func TestAnAllocatorIsReadFromOutsideFromTheAttachOn(t *testing.T) {
	m := newTorchMachine(t, 2)
	for name, setting := range map[string]string{"segments by cudaMalloc": "", "expandable segments": realtorch.ExpandableSegments} {
		t.Run(name, func(t *testing.T) {
			j := m.blocks(setting)
			j.next(t)
			io.WriteString(j.in, "\n")
			want := j.next(t)
			late := m.attach(0, j.pid)
			first := compareCaches(t, late, j, want, setting != "")
			for i := range first {
				if x := first[i]; older(&x) != x.Allocated || x.Allocated == 0 {
					t.Errorf("at the attach %d of %d bytes are older", older(&x), x.Allocated)
				}
				tensors := late.tensorsOf(t, j.pid, i)
				if tensors.Allocated != want[i].Allocated || tensors.Reserved != want[i].Reserved || tensors.Older != want[i].Allocated {
					t.Errorf("before its first report since the attach: %+v, PyTorch has %+v", tensors, want[i])
				}
			}
			for range 2 {
				io.WriteString(j.in, "\n")
				want = j.next(t)
				now := compareCaches(t, late, j, want, setting != "")
				for i := range now {
					if tensors := late.tensorsOf(t, j.pid, i); older(&now[i]) != tensors.Older || tensors.Older >= older(&first[i]) || tensors.LiveBytes == 0 {
						t.Errorf("later %d bytes are older, by events %d; %d at the attach, %d since", older(&now[i]), tensors.Older, older(&first[i]), tensors.LiveBytes)
					}
				}
			}
		})
	}
}

func older(c *ledger.AllocatorCache) (sum uint64) {
	for _, a := range c.Arenas {
		sum += a.Older
	}
	return sum
}

func (m *torchMachine) tensorsOf(t *testing.T, pid, device int) ledger.Tensors {
	t.Helper()
	s := m.snapshot()
	_, process := processOf(t, s, uint32(pid))
	for _, x := range s.Tensors {
		if x.Process == process && int(x.Device) == device {
			return x
		}
	}
	t.Fatalf("nothing is known of tensors on cuda:%d", device)
	return ledger.Tensors{}
}

// compareCaches compares what was read of a job at a point with what PyTorch has.
func compareCaches(t *testing.T, m *torchMachine, j *blocksJob, want [2]caching.Cache, expandable bool) (list [2]ledger.AllocatorCache) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		m.Tracer.snapshots.scanner.Last(t.Context())
		s := m.snapshot()
		_, process := processOf(t, s, uint32(j.pid))
		found := 0
		for device := range list {
			if c := s.CacheOn(process, int32(device)); c != nil {
				list[device] = *c
				found++
			}
		}
		if found == len(list) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("only %d allocators were read", found)
		}
	}
	for device := range list {
		got, w := list[device].Cache, want[device]
		streams := map[uint64]bool{}
		for _, a := range got.Arenas {
			streams[a.Stream] = true
		}
		if !list[device].Exact || len(streams) < 4 || got.Idle+got.Private+got.Pending+got.Streams+got.Small+got.Held != got.Cached {
			t.Errorf("cuda:%d: exact %v, %d streams, %+v", device, list[device].Exact, len(streams), got)
		}
		if expandable { // whole pages go back
			w.Idle = got.Idle
		}
		if got.Reserved != w.Reserved || got.Allocated != w.Allocated || got.Cached != w.Cached || got.Idle != w.Idle || got.Private != w.Private ||
			got.Pending != w.Pending || got.LargestFree != w.LargestFree {
			t.Errorf("cuda:%d: read %+v, PyTorch has %+v", device, got, w)
		}
	}
	return list
}

// TestPrivatePoolsAreKnownByALine: each pool of a CUDA graph or a MemPool that a traced job made
// leads to its script, and all memory of a graph's pool to the call that ended the capture.
func TestPrivatePoolsAreKnownByALine(t *testing.T) {
	m := newTorchMachine(t, 2)
	m.trace(nil)
	j := m.blocks("BLOCKS_WAIT=1")
	m.loaded(uint32(j.pid)) // otherwise the first stack traces are truncated
	io.WriteString(j.in, "\n")
	j.next(t)
	io.WriteString(j.in, "\n")
	j.next(t)
	var s *ledger.Snapshot
	m.eventually("the allocators are read at this point", func() bool {
		m.Tracer.snapshots.scanner.Last(t.Context())
		s = m.snapshot()
		return slices.ContainsFunc(s.Caches, func(c ledger.AllocatorCache) bool {
			return s.Processes[c.Process].PID == uint32(j.pid) && len(c.Origins) > 0
		})
	})
	_, process := processOf(t, s, uint32(j.pid))
	private, taken := 0, map[caching.PoolID]uint64{}
	for device := range int32(2) {
		c := s.CacheOn(process, device)
		if c == nil {
			t.Fatalf("cuda:%d was not read", device)
		}
		for _, a := range c.Arenas {
			if !a.Pool.Private() {
				continue
			}
			private++
			if a.Pool.OfGraph() {
				taken[a.Pool] -= a.Reserved
			}
			k := slices.IndexFunc(c.Origins, func(o ledger.PoolOrigin) bool { return o.Pool == a.Pool })
			if k < 0 {
				t.Errorf("the pool %v is known by its id alone", a.Pool)
				continue
			}
			if !slices.ContainsFunc(m.Stack(c.Origins[k].Stack), func(f callstack.Frame) bool { return strings.HasSuffix(f.File, "blocks.py") }) {
				t.Errorf("the pool %v leads to %+v", a.Pool, m.Stack(c.Origins[k].Stack))
			}
		}
	}
	if private < 3 || len(taken) == 0 {
		t.Errorf("only %d arenas of private pools, %d pools of graphs", private, len(taken))
	}
	for _, x := range s.CacheOn(process, 0).Captures {
		if !x.Pool.OfGraph() {
			continue
		}
		taken[x.Pool] += x.Bytes
		if !slices.ContainsFunc(m.Stack(x.Stack), func(f callstack.Frame) bool { return f.Function == "capture" && strings.HasSuffix(f.File, "blocks.py") }) {
			t.Errorf("the graph of the pool %v was captured by %+v", x.Pool, m.Stack(x.Stack))
		}
	}
	for id, missing := range taken {
		if missing != 0 {
			t.Errorf("of the pool %v, %d bytes are not those of its graph", id, -missing)
		}
	}
}
