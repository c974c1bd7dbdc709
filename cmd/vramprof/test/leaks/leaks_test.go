// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"flag"
	"fmt"
	"hash/crc32"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var (
	update = flag.Bool("update", false, "as -all, and store what was observed for TestVerdictsOnStoredRun")
	stored = flag.String("seen", "", "absolute path of the stored observations, instead of testdata/leaks/seen.json.zst")
	only   = flag.String("only", "", "run these programs, comma-separated")
	all    = flag.Bool("all", false, "run all programs for 60 s")
	budget = flag.Float64("budget", 0, "percent of a thread's time that tracing may take, as --budget; 0: off")
)

const (
	inBatch = 13 // programs that run at once
	oneIn   = 3  // of so many programs, one runs without -all
)

// Seconds after which programs are judged.
var (
	shortRun = []int{10}
	longRun  = []int{10, 60}
)

// batch is a set of programs that run at once: some started before the tracer, some after it.
type batch struct {
	late, early []*program
}

// batches deals the programs like cards, so that each batch has some of each language and verdict.
func batches(list []*program) []batch { return batchesOf(list, inBatch) }

// batchesOf makes batches of at most size programs.
func batchesOf(list []*program, size int) []batch {
	all, dealt, late := make([]batch, (len(list)+size-1)/size), 0, 0
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
	return corpusFile("seen.json.zst"), true
}

// TestVerdictsOnTheCorpus runs programs under the tracer and checks the verdict on each.
func TestVerdictsOnTheCorpus(t *testing.T) {
	moments := shortRun
	if *all || *update {
		moments = longRun
	}
	m := newMachine(t, moments)
	list := corpus(t)
	switch {
	case *only != "":
		list = slices.DeleteFunc(list, func(p *program) bool { return !slices.Contains(strings.Split(*only, ","), p.Name) })
	case !*all && !*update:
		list = slices.DeleteFunc(list, func(p *program) bool { return crc32.ChecksumIEEE([]byte(p.Name))/2%oneIn != 0 })
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
	if *all || *update {
		judge(t, seen, enough)
	} else {
		judge(t, seen, enoughOfSample)
	}
	t.Run("a month of each healthy program", func(t *testing.T) { testMonths(t, seen) })
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
		t.Errorf("%s stores other programs [scripts/leaks.sh --record replaces it]", path)
	}
	judge(t, seen, enough)
}
