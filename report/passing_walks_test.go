// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// walkedSession returns a session whose tensors are not traced: walks alone know of holders. Each
// walk is a second after the one before, and has the bytes of each path that it is given, in MiB.
func walkedSession(walks ...map[string]uint64) *ledger.Snapshot {
	l := ledger.New(ledger.Options{Begin: 1})
	l.Tell(ledger.Process{PID: 7, Begin: 1})
	now := uint64(1)
	for _, levels := range walks {
		now += uint64(time.Second)
		w := ledger.Walk{PID: 7, Time: now}
		for path, mib := range levels {
			w.Holders = append(w.Holders, ledger.Holder{Path: path, Found: true, Entries: -1, Retention: retention.Read(0, path)})
			for i := range mib {
				w.Storages = append(w.Storages, ledger.Storage{Address: uint64(len(w.Storages)+1) << 30, Bytes: 1 << 20, Holder: uint32(len(w.Holders) - 1), InMotion: i%2 == 1})
			}
		}
		l.Tell(ledger.WalkOpened{PID: 7, Time: now})
		l.Tell(w)
	}
	return l.Snapshot(now+1, time.Unix(1_800_000_000, 0))
}

// TestWalksAtOtherMomentsOfAStepShowNoGrowth: without events, only levels that rise from walk to
// walk are growth, and gradients never are.
func TestWalksAtOtherMomentsOfAStepShowNoGrowth(t *testing.T) {
	const grad, list, batch = "model.*.weight.grad", "kept[*]", `local "x" of step() (train.py:7)`
	for _, c := range []struct {
		name          string
		path          string
		levels        []uint64
		grew, unclear bool
	}{
		{"a list that grows", list, []uint64{10, 20, 30, 40}, true, false},
		{"a list that grows in bursts", list, []uint64{10, 20, 20, 30, 30, 40}, true, false},
		{"a list, in too few walks", list, []uint64{10, 20, 30}, false, true},
		{"a list that each epoch empties", list, []uint64{10, 40, 5, 30}, false, true},
		{"a warm-up that has ended", list, []uint64{10, 20, 30, 40, 40, 40, 40, 40}, false, true},
		{"a batch, in two walks", batch, []uint64{1, 5}, false, true},
		{"a batch", batch, []uint64{1, 5, 5, 5}, false, true},
		{"gradients, in two walks", grad, []uint64{0, 8}, false, true},
		{"gradients, by chance", grad, []uint64{1, 2, 4, 8}, false, true},
		{"weights", "model.*.weight", []uint64{8, 8, 8, 8}, false, false},
	} {
		var walks []map[string]uint64
		for _, n := range c.levels {
			walks = append(walks, map[string]uint64{c.path: n, "opt.state[*]": 3})
		}
		k := KeptBy(walkedSession(walks...))[0]
		if len(k.Grown)+len(k.Unclear)+len(k.Passing) > 1 || (len(k.Grown) == 1) != c.grew || (len(k.Unclear) == 1) != c.unclear {
			t.Errorf("%s: grew %+v, unclear %+v", c.name, k.Grown, k.Unclear)
		}
		if got := UnclearText(k.Unclear, k.Walks); (got != "") != c.unclear || c.unclear && len(c.levels) < LeastWalks && !strings.HasSuffix(got, fmt.Sprintf("4 walks to show, and there were %d", len(c.levels))) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// TestChanceRarelyRises: of walks of a step's memory at random moments, as few rise as LeastWalks
// says. Half of the time there is none, a tenth of the time it comes.
func TestChanceRarelyRises(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for walks, most := range map[int]float64{4: 0.042, 6: 0.004, 12: 0.001} {
		const tries = 20000
		any, step := 0, 0
		for range tries {
			a, b := make([]uint64, walks), make([]uint64, walks)
			for i := range a {
				a[i] = rng.Uint64N(1 << 40)
				if phase := rng.Float64(); phase > 0.6 {
					b[i] = 1 << 40
				} else if phase > 0.5 {
					b[i] = rng.Uint64N(1 << 40)
				}
			}
			any += btoi(rises(a))
			step += btoi(rises(b))
		}
		if p, q := float64(any)/tries, float64(step)/tries; p > most*1.2 || q > most*1.2 {
			t.Errorf("of %d walks, %.4f of any memory and %.4f of a step's rise, want at most %.4f", walks, p, q, most)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
