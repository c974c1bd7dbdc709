// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// state is PyTorch's own record of one moment.
type state struct {
	time                uint64
	blocks, segments    map[uint64]allocation // by address
	stacks              map[uint64][]place
	allocated, reserved uint64
}

// readStates reads the file of blocks.py.
func readStates(t *testing.T, file string) (list []*state) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var s *state
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if s == nil {
			s = &state{blocks: map[uint64]allocation{}, segments: map[uint64]allocation{}, stacks: map[uint64][]place{}}
		}
		var x []json.RawMessage
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		var sort string
		var n [5]uint64
		for i := range x {
			if i == 0 {
				_ = json.Unmarshal(x[0], &sort)
			} else if i < len(n) {
				_ = json.Unmarshal(x[i], &n[i]) // only the numbers of stacks
			}
		}
		switch sort {
		case "block":
			s.blocks[n[2]] = allocation{address: n[2], size: n[3], stack: n[4]}
		case "segment":
			s.segments[n[2]] = allocation{address: n[2], size: n[3]}
		case "stack":
			var frames [][3]any
			if err := json.Unmarshal(x[2], &frames); err != nil {
				t.Fatal(err)
			}
			s.stacks[n[1]] = []place{}
			for _, f := range frames {
				s.stacks[n[1]] = append(s.stacks[n[1]], place{function: f[0].(string), file: f[1].(string), line: int(f[2].(float64)), python: true})
			}
		case "totals":
			s.allocated, s.reserved = n[1], n[2]
		case "time":
			s.time = n[1]
			list = append(list, s)
			s = nil
		}
	}
	if lines.Err() != nil || len(list) == 0 {
		t.Fatalf("%s: %d states, %v", file, len(list), lines.Err())
	}
	return list
}

// runBlocks traces blocks.py from its first context on. It returns PyTorch's states and the
// capture.
func runBlocks(t *testing.T, seed, points, walks, depth int, more ...string) ([]*state, *session) {
	t.Helper()
	torch := realtorch.Prepare(t)
	env := torch.Env(t, 1, 64<<30)
	file := filepath.Join(t.TempDir(), "truth")
	j := torch.Start(t, env, filepath.Join(root, "testdata", "accuracy", "blocks.py"), file, fmt.Sprint(seed), fmt.Sprint(points), fmt.Sprint(walks), fmt.Sprint(depth), "--begin", "--history")
	j.Next("begin")
	s := record(t, env, append([]string{"-p", fmt.Sprint(j.Process.Pid)}, more...)...).ready()
	j.Go()
	j.Next("end")
	s.stop()
	if out, err := j.Finish(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return readStates(t, file), s
}

// liveBooks tracks which blocks and driver allocations are live.
type liveBooks struct {
	*ledger.Ledger
	blocks, driver map[uint64]allocation
}

func (b *liveBooks) Apply(e *ledger.Event) {
	of := b.driver
	if e.Kind == ledger.Tensor {
		of = b.blocks
	}
	switch e.Op {
	case ledger.Alloc:
		of[e.Address] = allocation{address: e.Address, size: e.Size, stack: e.Stack, api: e.API}
	case ledger.Free:
		delete(of, e.Address)
	}
	b.Ledger.Apply(e)
}

func TestStacksOfPyTorchBlocksEqualPyTorchsRecord(t *testing.T) {
	needRoot(t)
	states, s := runBlocks(t, 1, longer(2, 6), longer(120, 500), 20, "--sample", "0")
	p := s.played()
	books := &liveBooks{Ledger: p.rec.NewLedger(), blocks: map[uint64]allocation{}, driver: map[uint64]allocation{}}
	var times []uint64
	for _, truth := range states {
		times = append(times, truth.time)
	}
	var all score
	var bytesTotal, bytesWrong, segments, segmentsWrong uint64
	seen := map[string]bool{}
	playMoments(t, p.rec, books, times, func(i int) {
		truth := states[i]
		for address, block := range truth.blocks {
			got, ok := books.blocks[address]
			bytesTotal += block.size
			if !ok || got.size != block.size {
				bytesWrong += block.size
				t.Errorf("block %+v is booked as %+v (%v)", block, got, ok)
				continue
			}
			stack := p.rec.Stack(got.stack)
			places := truth.stacks[block.stack]
			seen[fmt.Sprint(places)] = true
			v := comparePyTorch(places, stack)
			all.add(v, places, stack)
		}
		for address, block := range books.blocks {
			if _, ok := truth.blocks[address]; !ok {
				bytesWrong += block.size
				t.Errorf("block %+v is booked but unknown to PyTorch", block)
			}
		}
		for address, segment := range truth.segments {
			segments++
			if got := books.driver[address]; got.size != segment.size {
				segmentsWrong++
				t.Errorf("segment %+v is booked as %+v", segment, got)
			}
		}
	})
	for _, example := range all.examples {
		t.Log(example)
	}
	results.add(t, "bytes of PyTorch's blocks", fmt.Sprintf("%s bytes live at %d moments", thousands(bytesTotal), len(states)), fmt.Sprintf("%s wrong", thousands(bytesWrong)))
	results.add(t, "PyTorch's segments", thousands(segments), fmt.Sprintf("%d wrong", segmentsWrong))
	results.add(t, "Python stacks, PyTorch", fmt.Sprintf("%s blocks, %s distinct stacks", thousands(all.total()), thousands(len(seen))), all.String())
	if all.bad() > 0 || all.counts[none] > 0 {
		t.Errorf("want none wrong and none missing: %v", &all)
	}
}

// comparePyTorch compares like compare; PyTorch's names have no class.
func comparePyTorch(truth []place, stack []callstack.Frame) verdict {
	var own []callstack.Frame
	for _, f := range stack {
		if f.Python || f.Mark {
			f.Function = path.Ext("." + f.Function)[1:]
			own = append(own, f)
		}
	}
	if len(stack) > 0 && len(own) == 0 && len(truth) == 0 { // a thread of the backward pass
		return right
	}
	return compare(truth, own, isPython)
}
