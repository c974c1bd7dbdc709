// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

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

// member is the part of one process in what all processes of a session share.
type member struct {
	*session
	Process                // Totals and Devices are only set in snapshots
	number  uint32         // counts the processes from 0
	held    [tables]int32  // places of each table
	user    *[tables]int32 // what all processes of its user hold
	beyond  [tables]uint64 // how often there was no room
	left    bool           // it is not in the books any more
}

// room reports whether a process may take a place of a table, and counts if not.
func (m *member) room(t table) bool {
	if m.hasRoomFor(t, 0) {
		return true
	}
	m.beyond[t]++
	return false
}

// hasRoomFor reports whether a process may take so many places of a table and one more.
func (m *member) hasRoomFor(t table, more int) bool {
	return m.quotas[t].Room(int(m.held[t])+more, int(m.user[t])+more)
}

func (m *member) hold(t table) { m.giveAll(t, -1) }

func (m *member) give(t table) { m.giveAll(t, 1) }

func (m *member) giveAll(t table, n int) {
	m.quotas[t].Add(-n)
	m.held[t] -= int32(n)
	m.user[t] -= int32(n)
}

// warnOf is session.warn for a sentence about the process, which has a share of the warnings.
func (m *member) warnOf(text string) {
	of, known := m.warned[text]
	switch {
	case known && of != nil:
		m.warned[text] = m // it stays as long as the newest of its processes
	case known:
	case m.room(tableWarnings):
		m.hold(tableWarnings)
		m.addWarning(text, m)
	default:
		m.addWarning(moreWarnings, nil)
	}
}

// setUser counts what the process holds as the user's, once.
func (p *process) setUser(user uint32) bool {
	if user == 0 || p.User != 0 {
		return false
	}
	p.User = user
	all := p.users[user]
	if all == nil {
		all = new([tables]int32)
		p.users[user] = all
	}
	for t := range p.held {
		all[t] += p.held[t]
	}
	p.user = all
	return true
}

// Limits are the sizes of the ledger's largest tables: see quota.Quota.
type Limits struct {
	Sites uint64
	Live  uint64 // allocations
}

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
