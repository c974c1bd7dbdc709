// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// walked gives all sites of a snapshot one holder, which had before bytes at the begin of the session
// and after bytes at its end.
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
		"local \"t\".history[*] of main() (train.py:7)": "the list only grows: clear the list, bound its size",
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
	if got := Remedy(&ledger.Holder{Path: "model.*.weight.grad", Retention: retention.Gradient}); !strings.Contains(got, "zero_grad(set_to_none=True)") {
		t.Error(got)
	}
}
