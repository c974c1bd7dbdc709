// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/stacks"
)

const (
	maxLive = 8 << 20

	// What one of each takes at most until all results are written: a site with its stack, its copy in a snapshot and its sample in
	// a profile; a live allocation.
	bytesOfSite = 16 << 10
	bytesOfLive = 128

	leastSites = 1 << 10

	// namesPart of the memory is for the tables of files with names.
	namesPart = 4
)

// limitsOf sizes the tables that processes fill by the memory that we may take.
func limitsOf(memory uint64) ledger.Limits {
	if memory == 0 {
		return ledger.Limits{Sites: stacks.Max, Live: maxLive}
	}
	return ledger.Limits{Sites: min(max(memory/bytesOfSite, leastSites), stacks.Max), Live: min(memory/bytesOfLive, maxLive)}
}

// nameMemoryOf is as much for names; 0: what symbolize takes by default.
func nameMemoryOf(memory uint64) int64 {
	const most = 256 << 20
	if memory/namesPart >= most {
		return 0
	}
	return int64(memory / namesPart)
}

// Tighten has processes and users get shares of half as much from now on: those that have most are followed in less detail. It
// reports whether there was anything left to halve.
func (t *Tracer) Tighten() bool {
	turn := t.desk.Take()
	defer turn.Done()
	least := limitsOf(t.config.Memory)
	least.Sites, least.Live = least.Sites/tightest, least.Live/tightest
	if t.limits.Sites <= least.Sites {
		return false
	}
	t.limits.Sites, t.limits.Live = t.limits.Sites/2, t.limits.Live/2
	turn.Tell(t.limits)
	t.stacks.Shrink(int(t.limits.Sites))
	return true
}

// tightest is the part of the tables that shares are of in the end.
const tightest = 16
