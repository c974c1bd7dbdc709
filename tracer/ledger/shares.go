// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

// Shares rations the places of a table that all processes use, so that one process, or all
// processes of one user, cannot fill it:
//
//   - one process has at most a quarter of the places, the processes of one user at most half;
//   - the last quarter is a reserve for newcomers: processes with less than a 64th, of users
//     with less than a 16th.
//
// The zero value has no places. The caller counts what a process and its user hold.
type Shares struct {
	size  int // places
	limit int // places that shares are fractions of: size, or fewer if memory is scarce
	used  int
}

const (
	processPart = 4
	userPart    = 2
	reservePart = 4
	newProcess  = 64
	newUser     = 16

	// Shares do not shrink below the share of a newcomer.
	leastLimit = newProcess / processPart
)

// NewShares returns the shares of a table with so many places.
func NewShares(size int) Shares { return Shares{size: size, limit: size} }

// Room reports whether a process that holds process places, and whose user holds user places, may
// take one more.
func (s *Shares) Room(process, user int) bool { return s.RoomFor(1, process, user) }

// RoomFor reports whether such a process may take n more.
func (s *Shares) RoomFor(n, process, user int) bool {
	process, user, used := process+n, user+n, s.used+n
	if process <= s.limit/processPart && user <= s.limit/userPart && used <= s.size-s.size/reservePart {
		return true
	}
	return used <= s.size && process <= max(s.size/newProcess, 1) && user <= max(s.size/newUser, 1)
}

// Take counts one place that a process has taken.
func (s *Shares) Take() { s.used++ }

// Give counts one place that a process has given back.
func (s *Shares) Give() { s.used-- }

// Add counts n places that were taken, or given back if n is negative.
func (s *Shares) Add(n int) { s.used += n }

// Size returns how many places there are.
func (s *Shares) Size() int { return s.size }

// Used returns how many places are taken.
func (s *Shares) Used() int { return s.used }

// OfProcess returns the most places that one process may hold.
func (s *Shares) OfProcess() int { return s.limit / processPart }

// Shrink lowers the shares, but not the reserve, as if the table had so many places. Held places
// stay held.
func (s *Shares) Shrink(limit int) { s.limit = max(min(limit, s.limit), s.size/leastLimit) }

// Resize makes a table smaller that has no places taken.
func (s *Shares) Resize(size int) { s.size, s.limit = min(size, s.size), min(size, s.size) }

// Places is a Shares that counts what each process holds, for callers that keep no such counts. It
// must not be used concurrently.
type Places struct {
	Shares
	processes map[uint32]int // by pid
	users     map[uint32]int
	userOf    map[uint32]uint32 // by pid
}

// NewPlaces returns Places of a table with so many places.
func NewPlaces(size int) Places {
	return Places{Shares: NewShares(size), processes: map[uint32]int{}, users: map[uint32]int{}, userOf: map[uint32]uint32{}}
}

// Take takes a place for a process, and reports whether there was room. User is as in Process;
// processes of unknown users count as one user's.
func (p *Places) Take(pid, user uint32) bool {
	if before, ok := p.userOf[pid]; ok {
		user = before // a process does not escape its share by changing its user
	}
	if !p.Room(p.processes[pid], p.users[user]) {
		return false
	}
	p.Shares.Take()
	p.processes[pid]++
	p.userOf[pid] = user
	p.users[user]++
	return true
}

// Give gives a place of a process back.
func (p *Places) Give(pid uint32) {
	p.Shares.Give()
	user := p.userOf[pid]
	if p.users[user]--; p.users[user] == 0 {
		delete(p.users, user)
	}
	if p.processes[pid]--; p.processes[pid] == 0 {
		delete(p.processes, pid)
		delete(p.userOf, pid)
	}
}

// Held returns how many places a process holds.
func (p *Places) Held(pid uint32) int { return p.processes[pid] }

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
	if l.shares[t].Room(int(p.held[t]), int(p.user[t])) {
		return true
	}
	p.beyond[t]++
	return false
}

func (l *Ledger) hold(t table, p *process) {
	l.shares[t].Take()
	p.held[t]++
	p.user[t]++
}

func (l *Ledger) give(t table, p *process) { l.giveAll(t, p, 1) }

func (l *Ledger) giveAll(t table, p *process, n int) {
	l.shares[t].used -= n
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

// Limits are the sizes of the ledger's largest tables: see Shares.
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
		switch s := &l.shares[t]; {
		case n == 0 || n >= uint64(s.limit):
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
