// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/heapscan"
	"github.com/vramprof/vramprof/tracer/ledger"
)

var withHolders = flag.Bool("holders", false, "look for holders while the Python programs of threads run, and compare")

const (
	betweenWalks  = 3 * time.Second
	inHolderBatch = 6 // walks take time of the programs' processors
)

// TestVerdictsWithHolders judges the same observations with holders and without, and compares the
// paths that walks found for leaks with those that the programs' authors name.
func TestVerdictsWithHolders(t *testing.T) {
	if !*withHolders {
		t.Skip("runs for minutes: scripts/leaks.sh --holders")
	}
	m := newMachine(t, shortRun)
	m.walks = &heapscan.Options{Every: betweenWalks}
	list := slices.DeleteFunc(corpus(t), func(p *program) bool {
		return p.isC() || p.Folder == "" || *only != "" && !slices.Contains(strings.Split(*only, ","), p.Name)
	})
	var with, without figures
	named, right := 0, 0
	for i, b := range batchesOf(list, inHolderBatch) {
		t.Run(fmt.Sprint("batch ", i), func(t *testing.T) {
			o := m.observe(t, b)
			s := o.Moments[0].Snapshot
			bare := withoutHolders(s)
			groups, bareGroups := verdict.JudgeLines(s, verdict.Judge(s, o)), verdict.JudgeLines(bare, verdict.Judge(bare, o))
			for i := range o.Programs {
				p := &o.Programs[i]
				r, was := p.outcome(o, s, groups), p.outcome(o, bare, bareGroups)
				with.add(&r)
				without.add(&was)
				if r.got() != was.got() && (r.first == nil) != (was.first == nil) || len(r.alarms) != len(was.alarms) {
					t.Logf("%s: with holders %s\n  without %s", p.Name, r.got(), was.got())
				}
				path := holderOf(s, p, &r)
				if p.Holder == "" {
					continue
				}
				named++
				if strings.Contains(path, lastOf(p.Holder)) {
					right++
				}
				t.Logf("%s: the author says %s, the walk %s", p.Name, p.Holder, path)
			}
		})
	}
	t.Logf("after 10 s, with holders: %s", &with)
	t.Logf("after 10 s, without:      %s", &without)
	t.Logf("of %d leaks whose holder the author names, walks end the same in %d", named, right)
}

// lastOf is the last attribute or key of a path with what follows: "values[*]" of
// "tracker.values[*]".
func lastOf(path string) string {
	path = strings.TrimSuffix(path, " (autograd graph)")
	if i := strings.LastIndex(path, "."); i >= 0 {
		return path[i+1:]
	}
	return path
}

// holderOf returns the path that keeps most of the line that leaks.
func holderOf(s *ledger.Snapshot, p *observed, r *outcome) string {
	g := r.first
	if g == nil {
		g = r.missed
	}
	if g == nil {
		return "unknown: the line is not listed"
	}
	walk := s.LatestWalk(g.Process)
	if walk == nil {
		return "unknown: there was no walk"
	}
	parts := map[int]uint64{}
	best := -1
	for _, i := range g.Sites {
		for _, h := range s.Sites[i].Holders {
			if parts[h.Holder] += h.Bytes; best < 0 || parts[h.Holder] > parts[best] {
				best = h.Holder
			}
		}
	}
	if best < 0 {
		return "unknown: no sampled block has a holder " + walk.Failure
	}
	return walk.Held[best].Path
}

func withoutHolders(s *ledger.Snapshot) *ledger.Snapshot {
	bare := *s
	bare.Walks, bare.Sites = nil, slices.Clone(s.Sites)
	for i := range bare.Sites {
		bare.Sites[i].Holders = nil
	}
	return &bare
}
