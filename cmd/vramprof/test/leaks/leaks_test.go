// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var (
	update = flag.Bool("update", false, "store the observations of this run, for TestVerdictsOnStoredRun")
	stored = flag.String("seen", "", "absolute path of the stored observations, instead of testdata/leaks/seen.json.gz")
	only   = flag.String("only", "", "run these programs, comma-separated")
)

const inBatch = 9 // programs that run at once

// batch is a set of programs that run at once: some started before the tracer, some after it.
type batch struct {
	late, early []*program
}

// batches deals the programs like cards, so that each batch has some of each language and verdict.
func batches(list []*program) []batch {
	all, dealt, late := make([]batch, (len(list)+inBatch-1)/inBatch), 0, 0
	for _, leaking := range []bool{true, false} {
		for _, c := range []bool{true, false} {
			for _, p := range list {
				if p.Leaking != leaking || p.isC() != c {
					continue
				}
				b := &all[dealt%len(all)]
				dealt++
				if !p.Early {
					late++
				}
				if p.Early || late%3 == 0 {
					b.early = append(b.early, p)
				} else {
					b.late = append(b.late, p)
				}
			}
		}
	}
	return all
}

// seenFile returns the repository's file unless another one is named.
func seenFile() (path string, ours bool) {
	if *stored != "" {
		return *stored, false
	}
	return corpusFile("seen.json.gz"), true
}

// TestVerdictsOnTheCorpus runs all programs under the tracer and checks the verdict on each.
func TestVerdictsOnTheCorpus(t *testing.T) {
	m := newMachine(t)
	list := corpus(t)
	if *only != "" {
		list = slices.DeleteFunc(list, func(p *program) bool { return !slices.Contains(strings.Split(*only, ","), p.Name) })
	}
	var seen []*observation
	for i, b := range batches(list) {
		t.Run(fmt.Sprint("batch ", i), func(t *testing.T) { seen = append(seen, m.observe(t, b)) })
	}
	if t.Failed() {
		t.FailNow()
	}
	if path, ours := seenFile(); *update && (!ours || *only == "") {
		if err := store(path, seen); err != nil {
			t.Fatal(err)
		}
	}
	judge(t, seen)
}

// TestVerdictsOnStoredRun needs neither root nor PyTorch.
func TestVerdictsOnStoredRun(t *testing.T) {
	path, ours := seenFile()
	seen, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	now, then := map[string]program{}, map[string]program{}
	for _, p := range corpus(t) {
		now[p.Name] = *p
	}
	for _, o := range seen {
		for _, p := range o.Programs {
			then[p.Name] = p.program
		}
	}
	if ours && !reflect.DeepEqual(now, then) {
		t.Errorf("%s stores other programs [go test ./cmd/vramprof/test/leaks -run Corpus -update replaces it]", path)
	}
	judge(t, seen)
}
