// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

const (
	lineLinear = 1 + iota
	lineTanh
	lineInput
	lineBackward
	lineMoments
	lineBuffer
	lineLinearNoGrad
	lineTanhNoGrad
	lineSparse
)

var trainStacks = named{
	lineLinear:       stackOf("addmm [libtorch_cpu.so]", "Linear.forward "+torch+"nn/modules/linear.py:125", "Module._call_impl "+torch+"nn/modules/module.py:1749", "loss_of /home/u/train.py:15", "main /home/u/train.py:25"),
	lineTanh:         stackOf("tanh [libtorch_cpu.so]", "Tanh.forward "+torch+"nn/modules/activation.py:9", "Module._call_impl "+torch+"nn/modules/module.py:1749", "loss_of /home/u/train.py:15", "main /home/u/train.py:25"),
	lineInput:        stackOf("randn [libtorch_cpu.so]", "main /home/u/train.py:24"),
	lineBackward:     stackOf("mm [libtorch_cpu.so]", "torch::autograd::generated::AddmmBackward0::apply(x) [libtorch_cpu.so]", "torch::autograd::Engine::thread_main(x) [libtorch_cpu.so]"),
	lineSparse:       stackOf("at::_ops::cat::call(x) [libtorch_cpu.so]", "at::native::add_out_sparse_cuda(x) [libtorch_cuda.so]", "torch::autograd::AccumulateGrad::apply(x) [libtorch_cpu.so]", "torch::autograd::Engine::thread_main(x) [libtorch_cpu.so]"),
	lineMoments:      stacks[objectOptimizer],
	lineLinearNoGrad: stackOf("addmm [libtorch_cpu.so]", "Linear.forward "+torch+"nn/modules/linear.py:125", "Module._call_impl "+torch+"nn/modules/module.py:1749", "features /home/u/train.py:15", "context_decorator.<locals>.decorate_context "+torch+"utils/_contextlib.py:116", "main /home/u/train.py:25"),
	lineTanhNoGrad:   stackOf("tanh [libtorch_cpu.so]", "Tanh.forward "+torch+"nn/modules/activation.py:9", "Module._call_impl "+torch+"nn/modules/module.py:1749", "features /home/u/train.py:15", "context_decorator.<locals>.decorate_context "+torch+"utils/_contextlib.py:116", "main /home/u/train.py:25"),
	lineBuffer:       stackOf("cudaHostAlloc [libcudart.so.12]", "x [libtorch_cuda.so]", "main /home/u/train.py:31"),
}

// advised runs a program of tensors, changes its snapshot, and returns the advice: "graph-kept:
// evidence".
func advised(run func(p *program), change func(s *ledger.Snapshot)) (list []Advice, text []string) {
	p := newProgram(1e7, 1)
	p.kind = ledger.Tensor
	run(p)
	s := p.snapshot()
	if change != nil {
		change(s)
	}
	list = Advise(s, trainStacks, Judge(s, trainStacks))
	for _, a := range list {
		text = append(text, string(a.Pattern)+": "+a.Evidence)
	}
	return list, text
}

func step(p *program, kept ...uint64) {
	for _, line := range []uint64{lineInput, lineLinear, lineTanh, lineBackward} {
		if slices.Contains(kept, line) {
			p.alloc(line, 1<<20)
		} else {
			p.use(line, 1<<20)
		}
	}
}

func TestAdviceOnWhatKeepsGrowing(t *testing.T) {
	training := func(kept ...uint64) func(*program) {
		return func(p *program) { p.train(steps, func(int) { step(p, kept...) }) }
	}
	for _, c := range []struct {
		name string
		run  func(*program)
		want string
	}{
		{"healthy", training(), ""},
		{"one tensor kept for itself", training(lineLinear), ""},
		{"inputs kept", training(lineInput), ""},
		{"loss kept", training(lineLinear, lineTanh),
			"graph-kept: 2 stacks of a forward pass leak below /home/u/train.py:15 loss_of, called from /home/u/train.py:25 main"},
		{"loss kept, with the input that the graph saves", training(lineLinear, lineTanh, lineInput),
			"graph-kept: 3 stacks of a forward pass leak below /home/u/train.py:15 loss_of, called from /home/u/train.py:25 main"},
		{"loss kept, with the scalar of another", func(p *program) {
			p.train(steps, func(int) { p.alloc(lineLinear, 1<<20); p.alloc(lineTanh, 512); p.use(lineBackward, 1<<20) })
		}, ""},
		{"a whole trainer kept", func(p *program) {
			p.train(steps, func(int) { p.alloc(lineMoments, 1<<20); p.alloc(lineBackward, 1<<20); step(p, lineLinear, lineTanh) })
		}, ""},
		{"features kept where a decorator switches gradients off", func(p *program) {
			p.train(steps, func(int) { p.alloc(lineLinearNoGrad, 1<<20); p.alloc(lineTanhNoGrad, 1<<20) })
		}, ""},
		{"outputs kept in inference", func(p *program) {
			p.train(steps, func(int) { p.alloc(lineLinear, 1<<20); p.alloc(lineTanh, 1<<20) })
		}, "no-grad: 2 stacks of a forward pass leak below /home/u/train.py:15 loss_of, called from /home/u/train.py:25 main, and no backward pass was seen"},
		{"gradients kept", training(lineBackward), "retain-graph: 1 stack of the backward pass, and none of the forward pass, leak"},
		{"graph of the backward pass kept", training(lineBackward, lineInput), "retain-graph: 1 stack of the backward pass and 1 stack of the forward pass leak"},
		{"gradients never freed", func(p *program) {
			p.alloc(lineBackward, 64<<20)
			p.train(steps, func(int) { step(p) })
		}, "zero-grad: 64.0 MiB of the first backward passes were never freed, while further ones ran"},
		{"gradients freed in each step", func(p *program) {
			p.train(steps, func(int) { step(p) })
			p.alloc(lineBackward, 64<<20)
		}, ""},
		{"pinned buffers", func(p *program) {
			p.kind = ledger.Pinned
			p.train(steps, func(int) { p.alloc(lineBuffer, 1<<20) })
		}, "pinned-growth: 1 stack of page-locked memory, the first: +6,001 MiB/min over 12s (5,981 to 6,022 MiB/min), 1,200 survivors in 12 of 12 windows, up to 12s old, 100% of allocated bytes never freed, 12 high-water marks"},
		{"pinned buffers that are used again", func(p *program) {
			p.kind = ledger.Pinned
			p.alloc(lineBuffer, 1<<20)
			p.train(steps, func(int) { p.use(lineBuffer, 1<<20) })
		}, ""},
	} {
		if list, got := advised(c.run, nil); strings.Join(got, "|") != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		} else if len(list) > 0 && list[0].Pattern == GraphKept && (list[0].Line.Line != 15 || len(list[0].Sites) < 2) {
			t.Errorf("%s: line %+v of %d sites", c.name, list[0].Line, len(list[0].Sites))
		}
	}
}

func TestHoldersProveAGraph(t *testing.T) {
	kept := func(p *program) { p.train(steps, func(int) { step(p, lineLinear, lineTanh) }) }
	for path, want := range map[string]string{
		"losses[*] (autograd graph)": "graph-kept: 2 stacks of a forward pass leak below /home/u/train.py:15 loss_of, called from /home/u/train.py:25 main, kept by losses[*] (autograd graph)",
		"extractor.features[*]":      "",
	} {
		list, got := advised(kept, func(s *ledger.Snapshot) {
			s.Walks = []ledger.Walked{{Held: []ledger.Held{{Holder: ledger.Holder{Path: path, Retention: retention.Read(0, path), Found: true}}}}}
			for i := range s.Sites {
				s.Sites[i].Holders = []ledger.SiteHolder{{Bytes: s.Sites[i].LiveBytes}}
			}
		})
		if strings.Join(got, "|") != want || len(list) > 0 && strings.Contains(list[0].Text, "perhaps") {
			t.Errorf("%s: got %q %+v", path, got, list)
		}
	}
}

// heldBy is a cache whose segments a line keeps from the driver.
func heldBy(stack, free uint64) []ledger.Stuck {
	set := ledger.StuckSet{Segments: free/(20<<20) + 1, Bytes: free + 24<<20, Free: free, By: []ledger.StuckBy{{Sampled: true, Stack: stack, API: "torch", Holder: -1, Blocks: 12, Bytes: 24 << 20}}}
	return []ledger.Stuck{{Segments: set.Segments, Bytes: set.Bytes, Free: free, Sets: []ledger.StuckSet{set}}}
}

func TestAdviceOnMemoryThatIsShort(t *testing.T) {
	const gib = 1 << 30
	quiet := func(p *program) { p.train(steps, func(int) { step(p) }) }
	tensors := func(s *ledger.Snapshot) *ledger.Tensors { return &s.Tensors[0] }
	// The process has the only GPU, of 80 GiB; another one can be there, too.
	machine := func(s *ledger.Snapshot, used uint64) {
		s.GPUs = []ledger.GPU{{UUID: "GPU-a", Total: 80 * gib, Used: used}}
		s.Processes[0].Devices = []string{"GPU-a"}
		s.Processes = append(s.Processes, ledger.Process{PID: 8, Devices: []string{"GPU-a"}})
		s.Balances = []ledger.Balance{{Process: 0, UUID: "GPU-a", Peak: used}, {Process: 1, UUID: "GPU-a"}}
	}
	activations := func(p *program) {
		p.train(steps, func(int) { p.use(lineLinear, 60*gib) })
	}
	for _, c := range []struct {
		name   string
		run    func(*program)
		change func(s *ledger.Snapshot)
		want   string
	}{
		{"fragments", quiet, func(s *ledger.Snapshot) {
			*tensors(s) = ledger.Tensors{Allocated: 4 * gib, Peak: 5 * gib, Reserved: 10 * gib, Segments: 10 * gib, Cached: 6 * gib, LargestFree: gib}
		}, "fragmentation: 10.0 GiB are reserved and 4.00 GiB allocated, never more than 5.00 GiB at once, largest free run: 1.00 GiB"},
		{"fragments that a line holds", quiet, func(s *ledger.Snapshot) {
			*tensors(s) = ledger.Tensors{Allocated: 4 * gib, Peak: 5 * gib, Reserved: 10 * gib, Segments: 10 * gib, Cached: 6 * gib, LargestFree: gib}
			s.Stuck = heldBy(lineBuffer, 5*gib)
		}, "fragmentation: 10.0 GiB are reserved and 4.00 GiB allocated, never more than 5.00 GiB at once, largest free run: 1.00 GiB; 24.0 MiB in 12 tensors hold 5.02 GiB in 257 segments, from /home/u/train.py:31 main"},
		{"cache of a peak", quiet, func(s *ledger.Snapshot) {
			*tensors(s) = ledger.Tensors{Allocated: 4 * gib, Peak: 9 * gib, Reserved: 10 * gib, Segments: 10 * gib, Cached: 6 * gib, LargestFree: gib}
		}, ""},
		{"cache of a peak before the attach", quiet, func(s *ledger.Snapshot) {
			*tensors(s) = ledger.Tensors{Allocated: 4 * gib, Peak: 5 * gib, Reserved: 10 * gib, Segments: 6 * gib, Cached: 2 * gib, OlderCached: 4 * gib, LargestFree: gib / 4}
		}, ""},
		{"cache in one piece", quiet, func(s *ledger.Snapshot) {
			*tensors(s) = ledger.Tensors{Allocated: 4 * gib, Peak: 5 * gib, Reserved: 10 * gib, Segments: 10 * gib, Cached: 6 * gib, LargestFree: 3 * gib}
		}, ""},
		{"expandable segments already", quiet, func(s *ledger.Snapshot) {
			*tensors(s) = ledger.Tensors{Allocated: 4 * gib, Peak: 5 * gib, Reserved: 10 * gib, Segments: 10 * gib, Cached: 6 * gib, LargestFree: gib}
			s.Sites = append(s.Sites, ledger.Site{Kind: ledger.VMM, Segment: true, API: "cuMemCreate"})
		}, ""},
		{"fragments out of memory", quiet, func(s *ledger.Snapshot) {
			*tensors(s) = ledger.Tensors{Allocated: 70 * gib, Peak: 78 * gib, Reserved: 79 * gib, Segments: 79 * gib, Cached: 9 * gib, LargestFree: gib}
			s.Failures = []ledger.Failure{{Result: outOfMemory, LastBytes: 2 * gib}}
		}, "fragmentation: 79.0 GiB are reserved and 70.0 GiB allocated, never more than 78.0 GiB at once, largest free run: 1.00 GiB, and 2.00 GiB were not available"},
		{"activations fill the GPU", activations, func(s *ledger.Snapshot) {
			machine(s, 70*gib)
			tensors(s).Peak = 65 * gib
		}, "checkpointing: up to 60.0 GiB of activations, of a peak of 65.0 GiB"},
		{"activations with room", activations, func(s *ledger.Snapshot) {
			machine(s, 60*gib)
			tensors(s).Peak = 58 * gib
		}, ""},
		{"neighbour out of memory", quiet, func(s *ledger.Snapshot) {
			machine(s, 40*gib)
			*tensors(s) = ledger.Tensors{Allocated: 4 * gib, Peak: 30 * gib, Reserved: 30 * gib, Segments: 30 * gib, Cached: 26 * gib, LargestFree: 20 * gib}
			s.Failures = []ledger.Failure{{Process: 1, Result: outOfMemory, LastBytes: 45 * gib}}
		}, "empty-cache: 26.0 GiB are cached and not in use, and process 8 on the same GPU could not get 45.0 GiB"},
		{"neighbour out of memory, and a cache that a line holds", quiet, func(s *ledger.Snapshot) {
			machine(s, 40*gib)
			*tensors(s) = ledger.Tensors{Allocated: 4 * gib, Peak: 30 * gib, Reserved: 30 * gib, Segments: 30 * gib, Cached: 26 * gib, LargestFree: 20 * gib}
			s.Failures = []ledger.Failure{{Process: 1, Result: outOfMemory, LastBytes: 45 * gib}}
			s.Stuck = heldBy(lineBuffer, 20*gib)
		}, "empty-cache: 26.0 GiB are cached and not in use, and process 8 on the same GPU could not get 45.0 GiB; 24.0 MiB in 12 tensors hold 20.0 GiB in 1,025 segments, from /home/u/train.py:31 main"},
		{"neighbour with hardly any", quiet, func(s *ledger.Snapshot) {
			machine(s, 78*gib)
			*tensors(s) = ledger.Tensors{Allocated: 4 * gib, Peak: 30 * gib, Reserved: 30 * gib, Segments: 30 * gib, Cached: 26 * gib, LargestFree: 20 * gib}
		}, "empty-cache: 26.0 GiB are cached and not in use, process 8 is on the same GPU, and 2.00 GiB are free"},
		{"neighbour with enough", quiet, func(s *ledger.Snapshot) {
			machine(s, 40*gib)
			*tensors(s) = ledger.Tensors{Allocated: 4 * gib, Peak: 30 * gib, Reserved: 30 * gib, Segments: 30 * gib, Cached: 26 * gib, LargestFree: 20 * gib}
		}, ""},
	} {
		if _, got := advised(c.run, c.change); strings.Join(got, "|") != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

// TestSparseGradientsAddUp: they were "kept", of which figures are to be copied.
func TestSparseGradientsAddUp(t *testing.T) {
	for line, want := range map[uint64]string{lineBackward: "gradients are kept", lineSparse: "sparse gradients add up"} {
		list, _ := advised(func(p *program) { p.train(steps, func(int) { p.alloc(line, 1<<20) }) }, nil)
		if len(list) != 1 || !strings.HasPrefix(list[0].Text, want) {
			t.Errorf("%v, want %q…", list, want)
		}
	}
}

// TestPinnedMemoryIsFreedAsItWasLocked: pin_memory() was named to programs in C.
func TestPinnedMemoryIsFreedAsItWasLocked(t *testing.T) {
	for _, c := range []struct {
		kind   ledger.Kind
		object Object
		want   string
	}{
		{ledger.Registered, objectUnknown, "cudaHostUnregister"},
		{ledger.Pinned, objectUnknown, "cudaFreeHost"},
		{ledger.Pinned, objectPinned, "pin_memory()"},
		{ledger.Pinned, objectPrefetched, "pin_memory()"},
	} {
		if got := pinnedText(&ledger.Site{Kind: c.kind}, c.object); !strings.Contains(got, c.want) {
			t.Errorf("%v %q: %s", c.kind, c.object, got)
		}
	}
}
