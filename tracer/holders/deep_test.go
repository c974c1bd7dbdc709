// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/holders/pythontest"
)

// deepGraph has a graph of n nodes, the first of which the attribute "state" leads to. Each saves a
// tensor.
func deepGraph(n int) *peek.Image {
	m := newSynthetic()
	data := uint64(0x7d0000000000)
	tensor := func() uint64 { data += 1 << 12; return m.newTensor(data, 4096) }
	node := uint64(0)
	for range n {
		next, saved := node, m.get(tensor()+24)
		m.tracked = m.tracked[:len(m.tracked)-1] // only C++ has it
		m.put(saved+56, 0)
		edge := m.puts(m.alloc(16), next, 0)
		node = m.puts(m.alloc(200), m.node, 0, 0)
		m.puts(node+24, edge, edge+16, edge+16)
		m.put(node+64, saved)
	}
	state := tensor()
	m.put(m.get(state+24)+24, m.puts(m.alloc(112), m.meta))
	m.put(m.get(m.get(state+24)+24)+48, node)
	return m.finish(m.newStr("decoder"), m.newObject(m.newDict(m.newStr("state"), state)))
}

func TestADeepGraphBelongsToWhatKeepsIt(t *testing.T) {
	const nodes = 100_000
	job := deepGraph(nodes)
	begin, first := time.Now(), ""
	for range 2 {
		lines := walkImage(t, job, Options{}).Lines()
		got := ""
		for _, l := range lines {
			got += fmt.Sprintf("%s: %d storages\n", l.Holder, l.Storages)
		}
		if first == "" {
			first = got
		}
		if want := fmt.Sprintf("decoder.state (autograd graph): %d storages\ndecoder.state: 1 storages\n", nodes); got != want || got != first {
			t.Fatalf("holders are\n%swant\n%s", got, want)
		}
	}
	t.Logf("two walks took %v", time.Since(begin))
}

// A list of lists of lists has more steps than a person reads; its root holds all of it
// nonetheless.
func TestADeepPathIsCutAtItsEndAndKeepsItsRoot(t *testing.T) {
	m := newSynthetic()
	list := m.newList(m.newTensor(0x7d0000000000, 4096))
	for range 20_000 {
		list = m.newList(list)
	}
	r := walkImage(t, m.finish(m.newStr("nested"), list), Options{})
	if len(r.Storages) != 1 {
		t.Fatalf("%d storages, want 1", len(r.Storages))
	}
	h := r.Storages[0].Holder
	if got := h.String(); h.Root().Kind != RootModule || len(got) > 1000 || got[:12] != "nested[*][*]" || got[len(got)-len("[*]…"):] != "[*]…" {
		t.Errorf("the holder is %s", got)
	}
}

// The commonest leak of guides: a recurrent state that was not detached keeps all steps.
func TestTwoWalksGiveTheGraphOfAllStepsToTheRecurrentState(t *testing.T) {
	const steps = 20_000 // 4 nodes each
	script, err := filepath.Abs("../../testdata/holders/chain.py")
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range torches(t) {
		t.Run(name, func(t *testing.T) {
			p := pythontest.Start(t, command(script, fmt.Sprint(steps)))
			for range 2 {
				r, err := Walk(context.Background(), p, Options{Host: true})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d objects, %+v, %q", r.Objects, r.Times, r.Problems)
				of := map[string]uint64{}
				for _, l := range r.Lines() {
					of[l.Holder] = l.Storages
				}
				// Each step saves the input and the output; the last output is the state itself.
				if of["decoder.state"] != 1 || of["decoder.state (autograd graph)"] < 2*steps-2 || of["no holder found"] != 0 {
					t.Errorf("holders of a chain of %d steps: %v", steps, of)
				}
			}
		})
	}
}
