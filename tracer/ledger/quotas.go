// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
)

// table is a table of the ledger that all processes share.
type table uint8

const (
	tableSites     table = iota // with their stacks
	tableBare                   // sites beyond the share of tableSites, without their stacks
	tableEver                   // sites, including those of ended processes
	tableLive                   // live allocations
	tableMappings               // handles and mappings of physical memory
	tableFailures               // sites of failed allocations
	tablePools                  // memory pools
	tableStrays                 // allocations that wait for their device
	tableExports                // exported memory
	tableImporters              // sites that import memory
	tableObjects                // driver objects
	tableObjectSites
	tableFrees // threads whose last free may be undone
	tableUnmapped
	tableWarnings
	tableProcesses
	tableHeld // holders

	tables
)

var tableNames = [tables]string{
	tableSites: "sites", tableBare: "sites without stacks", tableEver: "sites since the start", tableLive: "live allocations",
	tableMappings: "mappings", tableFailures: "failed allocations", tablePools: "memory pools", tableStrays: "allocations without a device",
	tableExports: "exported memory", tableImporters: "importing sites", tableObjects: "driver objects", tableObjectSites: "driver objects' stacks",
	tableFrees: "failed frees", tableUnmapped: "failed unmappings", tableWarnings: "warnings", tableProcesses: "processes", tableHeld: "holders",
}

// NoUser is the user of processes that ended before their user was known. Together they have the
// share of one user.
const NoUser = math.MaxUint32

// places counts what a process holds of each table.
type places struct {
	held   [tables]int32
	user   *[tables]int32 // what all processes of its user hold
	beyond [tables]uint64 // how often there was no room
}

// room reports whether a process may take a place of a table, and counts if not.
func (l *Ledger) room(t table, p *process) bool {
	if l.quotas[t].Room(int(p.held[t]), int(p.user[t])) {
		return true
	}
	p.beyond[t]++
	return false
}

func (l *Ledger) hold(t table, p *process) {
	l.quotas[t].Take()
	p.held[t]++
	p.user[t]++
}

func (l *Ledger) give(t table, p *process) { l.giveAll(t, p, 1) }

func (l *Ledger) giveAll(t table, p *process, n int) {
	l.quotas[t].Add(-n)
	p.held[t] -= int32(n)
	p.user[t] -= int32(n)
}

// setUser sets the user of a process, and counts what the process holds as the user's.
func (l *Ledger) setUser(p *process, user uint32) {
	if user == 0 || p.User != 0 {
		return
	}
	p.User = user
	l.processesOf[0]--
	l.processesOf[user]++
	all := l.users[user]
	if all == nil {
		all = new([tables]int32)
		l.users[user] = all
	}
	for t := range p.held {
		all[t] += p.held[t]
	}
	p.user = all
}

// Limits are the sizes of the ledger's largest tables: see quota.Quota.
type Limits struct {
	Sites uint64
	Live  uint64 // allocations
}

// setLimits makes the tables smaller. Before the first event, it resizes the tables themselves.
// Later, when memory becomes scarce, it shrinks the shares of processes and users: they keep what
// they have, and newcomers have as much room as before. Values of 0, and higher ones than before,
// change nothing.
func (l *Ledger) setLimits(x Limits) {
	shrink := func(t table, n uint64) {
		switch s := &l.quotas[t]; {
		case n == 0 || n >= uint64(s.Limit()):
		case !l.began:
			s.Resize(int(n))
		default:
			s.Shrink(int(n))
		}
	}
	for _, t := range [...]table{tableSites, tableBare, tableFailures, tableObjectSites, tablePools, tableImporters} {
		shrink(t, x.Sites)
	}
	for _, t := range [...]table{tableLive, tableMappings, tableStrays, tableExports, tableObjects, tableUnmapped} {
		shrink(t, x.Live)
	}
	if !l.began && x.Sites != 0 {
		shrink(tableEver, min(x.Sites, maxSites)*everPart)
		shrink(tableProcesses, x.Sites/2)
	}
}

// everPart is how many sites of ended processes, of 280 bytes each, are kept per possible live
// site, of 2 KB.
const everPart = maxSitesEver / maxSites

// Beyond counts how often a process had no room in a table, since its share or the table was used
// up.
type Beyond struct {
	Table string
	Count uint64
}

// BeyondStacks names the table of stacks' frames, which is not the ledger's.
const BeyondStacks = "stacks"

// beyondList returns the tables whose share a process has used up.
func (p *process) beyondList() (list []Beyond) {
	for t, n := range p.beyond {
		if n != 0 {
			list = append(list, Beyond{tableNames[t], n})
		}
	}
	if p.stacksLost != 0 {
		list = append(list, Beyond{BeyondStacks, p.stacksLost})
	}
	return list
}
