// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// walked gives all sites of a snapshot one holder, which had before bytes at the begin of the
// session and after bytes at its end.
func walked(s *ledger.Snapshot, path string, before, after uint64) {
	at := func(time, bytes uint64) ledger.Walked {
		return ledger.Walked{Time: time, Held: []ledger.Held{{
			Holder: ledger.Holder{Path: path, Retention: retention.Read(0, path), Container: "list", Containers: 1, Entries: int(bytes >> 10), Found: true}, Bytes: bytes, Storages: 1,
		}}}
	}
	s.Walks = []ledger.Walked{at(s.Begin+1, before), at(s.End, after)}
	for i := range s.Sites {
		s.Sites[i].Holders = []ledger.SiteHolder{{Bytes: s.Sites[i].LiveBytes}}
	}
}

func leaking() *ledger.Snapshot {
	p := newProgram(1e7, 1)
	p.kind = ledger.Tensor
	p.train(steps, func(int) { step(p, lineLinear) })
	return p.snapshot()
}

func classes(s *ledger.Snapshot) (class Class, evidence string) {
	groups := JudgeLines(s, Judge(s, trainStacks))
	return groups[0].Class, groups[0].Evidence
}

func TestAVerdictSaysHowItsHolderGrew(t *testing.T) {
	s := leaking()
	walked(s, "history[*]", 1<<20, 3<<20)
	if class, evidence := classes(s); class != Leaking || !strings.Contains(evidence, "what keeps most of it grew by 2,048 entries in ") {
		t.Errorf("%v: %s", class, evidence)
	}
}

func TestMemoryWhoseHoldersDidNotGrowIsNotCalledALeak(t *testing.T) {
	s := leaking()
	walked(s, "cache[*]", 3<<20, 3<<20)
	if class, evidence := classes(s); class != Growing || !strings.HasPrefix(evidence, "nothing that keeps it grew in ") {
		t.Errorf("%v: %s", class, evidence)
	}
	for name, change := range map[string]func(s *ledger.Snapshot){
		"unknown holders":         func(s *ledger.Snapshot) { s.Walks[0].Held[0].Found, s.Walks[1].Held[0].Found = false, false },
		"walks that cover little": func(s *ledger.Snapshot) { s.Walks[0].Time = s.End - 2*uint64(leastBetween) },
		"one walk":                func(s *ledger.Snapshot) { s.Walks = s.Walks[:1] },
		"an index without a holder": func(s *ledger.Snapshot) {
			for i := range s.Sites {
				s.Sites[i].Holders = []ledger.SiteHolder{{Holder: 7, Bytes: 1 << 40}}
			}
		},
	} {
		s := leaking()
		walked(s, "cache[*]", 3<<20, 3<<20)
		change(s)
		if class, evidence := classes(s); class != Leaking {
			t.Errorf("%s: %v: %s", name, class, evidence)
		}
	}
}

func TestAdviceOnContainers(t *testing.T) {
	for path, want := range map[string]string{
		"local \"t\".history[*] of main() (train.py:7)": "local \"t\".history only grows: remove what is no longer needed, bound its size",
		"embed.cache[*]":         "functools.lru_cache",
		"sys.last_value.args[0]": "the last error keeps it until the next error",
		"local \"outs\"[*] of evaluate() (eval.py:41), which an error ended": "an error ended the function",
		"optimizer.state[*]['exp_avg']":                                      "the optimizer keeps state",
		"losses[*] (autograd graph)":                                         "",
	} {
		s := leaking()
		walked(s, path, 1<<20, 3<<20)
		got := ""
		for _, a := range Advise(s, trainStacks, Judge(s, trainStacks)) {
			if a.Pattern == Container {
				if strings.Contains(a.Text, "delete") {
					t.Errorf("%s: %q: what an error leaves behind is not its cause", path, a.Text)
				}
				got = a.Text
				if len(a.Sites) != 1 || !strings.HasPrefix(a.Evidence, path+" grew by 2.00 MiB and 2,048 entries in ") {
					t.Errorf("%s: %+v", path, a)
				}
			}
		}
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", path, got)
		}
	}
	if got := Remedy(&ledger.Holder{Path: "model.*.weight.grad", Retention: retention.Gradient}); !strings.Contains(got, "parameters become more") {
		t.Error(got)
	}
}

// TestAFewViewsAreNotAllThatAHolderKeeps: one storage that is used in part says nothing of a
// thousand others.
func TestAFewViewsAreNotAllThatAHolderKeeps(t *testing.T) {
	for views, want := range map[uint64]bool{1: false, 500: false, 501: true, 1000: true} {
		s := leaking()
		walked(s, "history[*]", 1<<20, 3<<20)
		w := &s.Walks[1]
		w.Held[0].Storages = 1000
		w.Waste = []ledger.Waste{{Kind: wasteViews, Path: "history[*]", Storages: views, Bytes: views << 10, Whole: views << 11}}
		found := false
		for _, a := range Advise(s, trainStacks, Judge(s, trainStacks)) {
			found = found || strings.Contains(a.Text, "each is a view")
		}
		if found != want {
			t.Errorf("%d of 1,000 storages are views: advice %v", views, found)
		}
	}
}

// TestRemediesNameThings: the thing of a path is what a person would name, not the class of its
// innermost container, and a single tensor is not told to be cleared.
func TestRemediesNameThings(t *testing.T) {
	for _, c := range []struct {
		held ledger.Holder
		want string
	}{
		{ledger.Holder{Path: "trainer.seen[*][0]", Container: "tuple"}, "trainer.seen only grows: "},
		{ledger.Holder{Path: "opt._optimizer_step_post_hooks[*].<closure before>", Container: "OrderedDict"}, "PyTorch hooks are added to opt._optimizer_step_post_hooks and never removed: call remove() of the handle"},
		{ledger.Holder{Path: "opt.momentum.buffer", Container: ""}, "what this path keeps only grows: keep less of it"},
		{ledger.Holder{Path: "chat.mask", Thing: "chat.mask"}, "chat.mask only grows: keep less of it"},
		{ledger.Holder{Path: "cycle of Request, State.cache", Thing: "cycle of Request, State.cache", Retention: retention.Known | retention.Cycle}, "these objects refer to each other, and Python's garbage collector does not free them"},
		{ledger.Holder{Path: "decoder.state (autograd graph)", Thing: "decoder.state", Retention: retention.Known | retention.Graph}, "the graph of all steps is kept through decoder.state: detach() it in each step"},
		{ledger.Holder{Path: "local \"h\" (autograd graph) of main() (train.py:7)", Thing: "local \"h\"", Retention: retention.Known | retention.Graph}, "the graph of all steps is kept through local \"h\": detach() it in each step"},
		{ledger.Holder{Path: "losses[*] (autograd graph)", Thing: "losses", Many: true, Retention: retention.Known | retention.Graph}, "the graph of what it holds is kept: keep loss.item()"},
		{ledger.Holder{Path: "registry.data[*].state", Thing: "registry.data", Many: true, Retention: retention.Known | retention.WeakKeys | retention.OwnKeys}, "values of the WeakKeyDictionary registry refer to their own keys"},
		{ledger.Holder{Path: "registry.data[*].list[*]", Thing: "registry.data[*].list", Many: true, Retention: retention.Known | retention.WeakKeys | retention.OwnKeys}, "values of this WeakKeyDictionary refer to their own keys"},
		{ledger.Holder{Path: "tasks[*]._result", Thing: "tasks", Many: true, Retention: retention.Known | retention.Ended}, "a task or a frame of a function that has ended keeps it"},
		{ledger.Holder{Path: "registry.data[*].state", Retention: retention.Known | retention.WeakKeys}, "entries of this WeakKeyDictionary stay as long as their keys live"},
	} {
		if got := Remedy(&c.held); !strings.HasPrefix(got, c.want) || strings.Contains(got, "the tuple") {
			t.Errorf("%s: %q, want %q…", c.held.Path, got, c.want)
		}
	}
}

// TestWasteHasTexts: each kind has its own sentence, and that of views has the factor by which the
// storage is larger.
func TestWasteHasTexts(t *testing.T) {
	views := ledger.Waste{Kind: wasteViews, Bytes: 3_211_264, Whole: 3_227_648} // of 197 tokens one
	if got := WasteText(&views); got != "each is a view of a storage 197 times its size: clone() it" {
		t.Error(got)
	}
	said := map[string]string{}
	for _, kind := range []string{wasteViews, wasteFrozen, wasteGone, wasteEnded, wasteCopies, "errors"} {
		text := WasteText(&ledger.Waste{Kind: kind})
		if text == "" || said[text] != "" {
			t.Errorf("%s: %q, as %s", kind, text, said[text])
		}
		said[text] = kind
	}
}

// TestStrandedCaches: free memory that only side streams or pools can use is said to be that, and
// settings that would not help are not advised; of the same cache free on the main stream, nothing
// is said.
func TestStrandedCaches(t *testing.T) {
	const mib = uint64(1 << 20)
	arena := func(stream uint64, pool caching.PoolID, free, idle uint64) caching.ArenaCache {
		return caching.ArenaCache{Arena: caching.Arena{Stream: stream, Pool: pool}, Segments: 1, Reserved: free, Free: free, Idle: idle}
	}
	for _, c := range []struct {
		name   string
		arenas []caching.ArenaCache
		want   string
		bytes  uint64
	}{
		{"streams", []caching.ArenaCache{arena(0, caching.PoolID{}, 64*mib, 0), arena(5, caching.PoolID{}, 256*mib, 256*mib), arena(6, caching.PoolID{}, 256*mib, 128*mib)},
			"512 MiB of PyTorch's cache are free on 2 side streams, and no other stream can use them: use the same streams again", 512 * mib},
		{"pools", []caching.ArenaCache{arena(0, caching.PoolID{}, 64*mib, 0), arena(0, caching.PoolID{1}, 300*mib, 0), arena(0, caching.PoolID{2}, 212*mib, 0)},
			"512 MiB of PyTorch's cache are free in 2 private pools of CUDA graphs or MemPools, and nothing else can use them", 512 * mib},
		{"main", []caching.ArenaCache{arena(0, caching.PoolID{}, 512*mib, 512*mib)}, "", 0},
		{"little", []caching.ArenaCache{arena(0, caching.PoolID{}, 480*mib, 0), arena(5, caching.PoolID{}, 32*mib, 32*mib)}, "", 0},
	} {
		list, _ := advised(func(p *program) { p.train(steps, func(int) { p.use(lineInput, 1<<20) }) }, func(s *ledger.Snapshot) {
			s.Tensors = []ledger.Tensors{{Process: 0, Device: 0, Allocated: mib, Peak: mib, Reserved: 600 * mib, Segments: 600 * mib, Cached: 512 * mib, LargestFree: 512 * mib}}
			s.Caches = []ledger.AllocatorCache{{Device: caching.Device{Index: 0}, Cache: caching.Cache{Cached: 512 * mib, Arenas: c.arenas}}}
		})
		got, bytes := "", uint64(0)
		for _, a := range list {
			if got, bytes = a.Text, a.Bytes; strings.Contains(a.Text+a.Evidence, "expandable_segments") {
				t.Errorf("%s: %q without a replay", c.name, a.Text)
			}
		}
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") || bytes != c.bytes {
			t.Errorf("%s: %d bytes, %q, want %q", c.name, bytes, got, c.want)
		}
	}
}
