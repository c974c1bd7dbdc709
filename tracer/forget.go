// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"time"

	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Forget has processes that ended longer ago than keep leave the books, see ledger.Forget, and the
// tracer drop what it keeps and nobody uses. A session without an end calls it once per minute,
// also before Run.
func (t *Tracer) Forget(keep time.Duration) {
	if now, age := clock.Now(), uint64(max(keep, 0)); age < now {
		t.sequencer.Tell(ledger.Forget{Before: now - age})
	}
	t.jobs.add(job{kind: jobEvict})
}

// Fold has sites with fewer live bytes lose their stack, and returns how many did. It gives memory
// back: see ledger.Fold.
func (t *Tracer) Fold(below uint64) uint64 {
	tx := t.sequencer.Begin()
	defer tx.Done()
	return tx.Fold(below)
}
