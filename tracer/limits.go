// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/stacks"
)

const (
	maxLive = 8 << 20

	// At most so many bytes until all results are written: a site with its stack, its copy in a
	// snapshot and its sample in a profile; a live allocation.
	bytesOfSite = 16 << 10
	bytesOfLive = 128

	leastSites = 1 << 10

	// namesPart of the memory is for the tables of files with names.
	namesPart = 4
)

// limitsOf returns the sizes of the tables that processes fill, by the memory that vramprof may
// take.
func limitsOf(memory uint64) ledger.Limits {
	if memory == 0 {
		return ledger.Limits{Sites: stacks.Max, Live: maxLive}
	}
	return ledger.Limits{Sites: min(max(memory/bytesOfSite, leastSites), stacks.Max), Live: min(memory/bytesOfLive, maxLive)}
}

// nameMemoryOf returns how much memory names may take; 0: the default of symbolize.
func nameMemoryOf(memory uint64) int64 {
	const most = 256 << 20
	if memory/namesPart >= most {
		return 0
	}
	return int64(memory / namesPart)
}

// Tighten halves the shares of processes and users: those that have most are followed in less
// detail from now on. It reports whether there was anything left to halve.
func (t *Tracer) Tighten() bool {
	tx := t.sequencer.Begin()
	defer tx.Done()
	least := limitsOf(t.config.Memory)
	least.Sites, least.Live = least.Sites/tightest, least.Live/tightest
	if t.limits.Sites <= least.Sites {
		return false
	}
	t.limits.Sites, t.limits.Live = t.limits.Sites/2, t.limits.Live/2
	tx.Tell(t.limits)
	t.stacks.Shrink(int(t.limits.Sites))
	return true
}

// tightest is by how much Tighten divides the shares at most.
const tightest = 16
