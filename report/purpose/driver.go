// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// driver divides what was allocated from CUDA beside PyTorch's cache, by the library that asked for it.
func (d *divider) driver(x *part, rows rowSet) {
	reports := report.ReportTensors(d.s)
	found := map[rowKey]uint64{}
	var keys []rowKey
	var sum uint64
	for i := range d.s.Sites {
		site := &d.s.Sites[i]
		if site.Process != x.Process || !site.Kind.Owned() || site.LiveBytes == 0 || !d.isOn(x, site.Device) && !d.isOnly(x, site) {
			continue
		}
		if site.Segment && reports[site.Process] {
			continue
		}
		key := d.ownerOf(site)
		if _, known := found[key]; !known {
			keys = append(keys, key)
		}
		found[key] += site.LiveBytes
		sum += site.LiveBytes
	}
	total := x.Driver
	if !x.read {
		total = sum
	}
	weights := make([]uint64, len(keys))
	for i, key := range keys {
		weights[i] = found[key]
	}
	switch {
	case sum > total:
		weights = apportion(total, weights)
	case sum < total:
		rows.add(CUDA, "", total-sum)
	}
	for i, key := range keys {
		if len(weights) > i {
			rows.add(key.kind, key.library, weights[i])
		}
	}
}

// isOnly reports whether a site whose device is unknown is on the only GPU of its process.
func (d *divider) isOnly(x *part, site *ledger.Site) bool {
	b := d.s.BalanceOf(site.Process, site.Device)
	return b >= 0 && d.s.Balances[b].UUID == x.UUID
}

// ownerOf returns whose a site is.
func (d *divider) ownerOf(site *ledger.Site) rowKey {
	if site.Kind == ledger.Graph {
		return rowKey{kind: Graphs}
	}
	if d.stacks.st == nil {
		return rowKey{kind: CUDA}
	}
	if key, ok := libraryOf(frames.Visible(d.stacks.st, site.Stack, site.API)); ok {
		return key
	}
	if site.Kind == ledger.Internal {
		return rowKey{kind: Context}
	}
	return rowKey{kind: CUDA}
}
