// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var (
	update = flag.Bool("update", false, "store what this run sees for TestStored")
	only   = flag.String("only", "", "programs, by their names with commas between")
)

const inBatch = 8 // programs that run at once

// batches mixes both languages and both verdicts in each batch: the list goes round them like cards.
func batches(list []*program) [][]*program {
	n := (len(list) + inBatch - 1) / inBatch
	all, at := make([][]*program, n), 0
	for _, leaking := range []bool{true, false} {
		for _, c := range []bool{true, false} {
			for _, p := range list {
				if p.Leaking == leaking && p.isC() == c {
					all[at%n] = append(all[at%n], p)
					at++
				}
			}
		}
	}
	return all
}

func TestX(t *testing.T) {
	m := newMachine(t)
	list := corpus(t)
	if *only != "" {
		var some []*program
		for _, p := range list {
			for _, name := range strings.Split(*only, ",") {
				if p.Name == name {
					some = append(some, p)
				}
			}
		}
		list = some
	}
	var seen []*observation
	for i, batch := range batches(list) {
		t.Run(fmt.Sprint("batch ", i), func(t *testing.T) { seen = append(seen, m.observe(t, batch)) })
	}
	if err := store("/tmp/observed.json.gz", seen); err != nil {
		t.Fatal(err)
	}
	_ = os.Stdout
}
