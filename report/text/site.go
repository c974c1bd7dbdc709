// SPDX-License-Identifier: Apache-2.0

package text

import (
	"io"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// WriteSite writes one site as WriteLeaks does, with its whole stack. Rank is its number among
// others.
func WriteSite(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, x *ledger.Site, rank int, screen Screen) error {
	p := newPage(screen)
	leakSite(p, s, st, report.KeptBy(s)[x.Process].OfSites([]*ledger.Site{x}), rank, x, 0)
	return p.writeTo(w)
}
