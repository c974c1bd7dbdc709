// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/holders/pythontest"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

// truth is a job's own report (testdata/holders/kinds.py).
type truth struct {
	Device, Torch string
	Truth         [][3]any    // address, bytes, path
	Collector     [][2]uint64 // address, bytes of each storage that Python's collector leads to
	Blocks        [][2]uint64 // of PyTorch's allocator
	Objects       int
}

func readTruth(t testing.TB, name string) (tr truth) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &tr); err != nil {
		t.Fatal(err)
	}
	return tr
}

// score compares a walk with a job's truth.
type score struct {
	Kinds                            int
	Right, Wrong, Missed             int
	RightBytes, WrongBytes, AllBytes uint64
	SeenBytes, FoundBytes            uint64 // by the collector; of these with a holder
	Wrongs                           []string
}

func (tr truth) score(r *Result) (s score) {
	found := map[uint64]Storage{}
	for _, st := range r.Storages {
		found[st.Address] = st
	}
	kinds := map[string]bool{}
	for _, row := range tr.Truth {
		address, bytes, want := uint64(row[0].(float64)), uint64(row[1].(float64)), row[2].(string)
		s.AllBytes += bytes
		kinds[numbers.ReplaceAllString(want, "*")] = true
		st, is := found[address]
		got := "nothing"
		if is {
			got = lineNumber.ReplaceAllString(st.Holder.String(), "py:LINE)")
		}
		switch {
		case is && got == want:
			s.Right++
			s.RightBytes += bytes
			continue
		case !is:
			s.Missed++
		default:
			s.Wrong++
		}
		s.WrongBytes += bytes
		s.Wrongs = append(s.Wrongs, fmt.Sprintf("%s: found as %s", want, got))
	}
	for _, row := range tr.Collector {
		s.SeenBytes += row[1]
		if st, is := found[row[0]]; is && st.Holder.Root().Kind != RootNative && st.Holder.Root().Kind != RootNone {
			s.FoundBytes += row[1]
		}
	}
	s.Kinds = len(kinds)
	return s
}

// torches returns how to run the PyTorchs that this machine has. VRAMPROF_PYTORCH names further
// programs, separated by colons.
func torches(t *testing.T) map[string]func(script string, args ...string) *exec.Cmd {
	root := realtorch.Prepare(t)
	env := root.Env(t, 1, 8<<30)
	all := map[string]func(string, ...string) *exec.Cmd{
		"2.6 cuda": func(script string, args ...string) *exec.Cmd { return root.Command(env, script, args...) },
	}
	for _, program := range filepath.SplitList(os.Getenv("VRAMPROF_PYTORCH")) {
		all[program] = func(script string, args ...string) *exec.Cmd {
			return exec.Command(program, append([]string{script}, args...)...)
		}
	}
	return all
}

func TestKindsOfHolders(t *testing.T) {
	script, err := filepath.Abs("../../testdata/holders/kinds.py")
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range torches(t) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "truth.json")
			p := pythontest.Start(t, command(script, file))
			r, err := Walk(context.Background(), p, Options{Host: true})
			if err != nil {
				t.Fatal(err)
			}
			tr := readTruth(t, file)
			s := tr.score(r)
			for _, st := range r.Storages { // a PyTorch hook of an optimizer keeps no state of it
				if path := st.Holder.String(); strings.Contains(path, "_step_post_hooks") && st.Part != modelpart.None {
					t.Errorf("%s is called %v", path, st.Part)
				}
			}
			t.Logf("| PyTorch, device | Python | kinds | right | wrong | missed | bytes right | of the collector's bytes with a holder |")
			t.Logf("| %s, %s | %s | %d | %d | %d | %d | %.4f | %.4f |", tr.Torch, tr.Device, r.Python, s.Kinds, s.Right, s.Wrong, s.Missed,
				share(s.RightBytes, s.AllBytes), share(s.FoundBytes, s.SeenBytes))
			t.Logf("%d objects reached, %d tracked, %d loose, %d bad reads, %d MiB copied, %+v, %q", r.Objects, r.Tracked, r.Loose, r.Bad, r.Copied>>20, r.Times, r.Problems)
			t.Logf("blocks: %s", strings.Join(tr.unexplained(r), ", "))
			tr.checkBlocks(t, p)
			lean, err := Walk(context.Background(), p, Options{Host: true, MaxMemory: 64 << 20})
			if err != nil {
				t.Fatal(err)
			}
			l := tr.score(lean)
			t.Logf("without a copy: %d right, %d wrong, %d missed, %d MiB, %+v", l.Right, l.Wrong, l.Missed, lean.Copied>>20, lean.Times)
			if share(l.RightBytes, l.AllBytes) < 0.99 || lean.Copied > 64<<20 {
				t.Errorf("without a copy: %s", strings.Join(l.Wrongs, "\n"))
			}
			sort.Strings(s.Wrongs)
			if share(s.RightBytes, s.AllBytes) < 0.99 || share(s.FoundBytes, s.SeenBytes) < 0.99 || s.Kinds < 75 || 200*s.Wrong > s.Right {
				t.Errorf("%s", strings.Join(s.Wrongs, "\n"))
			} else {
				t.Logf("%s", strings.Join(s.Wrongs, "\n"))
			}
		})
	}
}

// checkBlocks wants one storage or allocation in each block of PyTorch's allocator.
func (tr truth) checkBlocks(t *testing.T, p *peek.Process) {
	t.Helper()
	var ranges []Range
	for _, b := range tr.Blocks {
		ranges = append(ranges, Range{Address: b[0], Bytes: b[1]})
	}
	r, err := Walk(context.Background(), p, Options{Host: true, Addresses: ranges})
	if err != nil {
		t.Fatal(err)
	}
	known := map[uint64]int{}
	for _, s := range r.Storages {
		known[s.Address]++
		// Only cuBLAS's workspace is one, in a table of that library. Any word that has its address
		// is evidence, also one that a C++ object has left over.
		got := s.Holder.String()
		if s.Allocation && strings.HasPrefix(got, "C++ object of class ") {
			t.Logf("%d bytes without a storage: %s", s.Bytes, got)
		} else if s.Allocation && !strings.HasPrefix(got, "variable of libtorch_cuda") && got != "no holder found" && !(fakecuda.OnNVIDIA() && got == "stack of a thread") {
			t.Errorf("%d bytes without a storage: %s", s.Bytes, s.Holder)
		}
	}
	for _, b := range ranges {
		if known[b.Address] != 1 {
			t.Errorf("block %#x has %d storages and allocations, want 1", b.Address, known[b.Address])
		}
	}
	t.Logf("with the addresses of %d blocks: %+v", len(ranges), r.Times)
}

// unexplained lists the allocator's blocks that no storage was found in.
func (tr truth) unexplained(r *Result) (lines []string) {
	known := map[uint64]bool{}
	for _, st := range r.Storages {
		known[st.Address] = true
	}
	var all, rest uint64
	for _, b := range tr.Blocks {
		all += b[1]
		if !known[b[0]] {
			rest += b[1]
			lines = append(lines, fmt.Sprintf("%#x+%d", b[0], b[1]))
		}
	}
	return append(lines, fmt.Sprintf("%d of %d bytes without a storage", rest, all))
}

func share(part, all uint64) float64 {
	if all == 0 {
		return 1
	}
	return float64(part) / float64(all)
}
