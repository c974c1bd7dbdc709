// SPDX-License-Identifier: Apache-2.0

// Package quota shares tables and work among processes and their users, so that none can use up
// what all need.
package quota

// Quota rations the places of a table that all processes use, so that one process, or all
// processes of one user, cannot fill it:
//
//   - one process has at most a quarter of the places, the processes of one user at most half;
//   - the last quarter is a reserve for newcomers: processes with less than a 64th, of users
//     with less than a 16th.
//
// The zero value has no places. The caller counts what a process and its user hold.
type Quota struct {
	size  int // places
	limit int // places that shares are fractions of: size, or fewer if memory is scarce
	used  int
}

const (
	ProcessPart = 4  // one process has at most 1/ProcessPart of the places
	UserPart    = 2  // the processes of one user have at most 1/UserPart
	ReservePart = 4  // 1/ReservePart of the places is for newcomers
	NewProcess  = 64 // a newcomer has at most 1/NewProcess of the places
	NewUser     = 16 // and its user, 1/NewUser

	// Quotas do not shrink below the share of a newcomer.
	leastLimit = NewProcess / ProcessPart
)

// New returns the quota of a table with so many places.
func New(size int) Quota { return Quota{size: size, limit: size} }

// Room reports whether a process that holds process places, and whose user holds user places, may
// take one more.
func (q *Quota) Room(process, user int) bool { return q.RoomFor(1, process, user) }

// RoomFor reports whether such a process may take n more.
func (q *Quota) RoomFor(n, process, user int) bool {
	process, user, used := process+n, user+n, q.used+n
	if process <= q.limit/ProcessPart && user <= q.limit/UserPart && used <= q.size-q.size/ReservePart {
		return true
	}
	return used <= q.size && process <= max(q.size/NewProcess, 1) && user <= max(q.size/NewUser, 1)
}

// Take counts one place that a process has taken.
func (q *Quota) Take() { q.used++ }

// Give counts one place that a process has given back.
func (q *Quota) Give() { q.used-- }

// Add counts n places that were taken, or given back if n is negative.
func (q *Quota) Add(n int) { q.used += n }

// Size returns how many places there are.
func (q *Quota) Size() int { return q.size }

// Limit returns the number of places that shares are fractions of.
func (q *Quota) Limit() int { return q.limit }

// Restore sets the size and the limit to those of another time, at most to the present size.
func (q *Quota) Restore(size, limit int) {
	q.size = max(min(size, q.size), 1)
	q.limit = max(min(limit, q.size), 1)
}

// Used returns how many places are taken.
func (q *Quota) Used() int { return q.used }

// OfProcess returns the most places that one process may hold.
func (q *Quota) OfProcess() int { return q.limit / ProcessPart }

// Shrink lowers the shares, but not the reserve, as if the table had so many places. Held places
// stay held.
func (q *Quota) Shrink(limit int) { q.limit = max(min(limit, q.limit), q.size/leastLimit) }

// Resize makes a table smaller that has no places taken.
func (q *Quota) Resize(size int) { q.size, q.limit = min(size, q.size), min(size, q.size) }

// ByProcess is a Quota that counts what each process holds, for callers that keep no such counts.
// It must not be used concurrently.
type ByProcess struct {
	Quota
	processes map[uint32]int // by pid
	users     map[uint32]int
	userOf    map[uint32]uint32 // by pid
}

// NewByProcess returns the ByProcess of a table with so many places.
func NewByProcess(size int) ByProcess {
	return ByProcess{Quota: New(size), processes: map[uint32]int{}, users: map[uint32]int{}, userOf: map[uint32]uint32{}}
}

// Take takes a place for a process, and reports whether there was room. User is as in
// ledger.Process; processes of unknown users count as one user's.
func (p *ByProcess) Take(pid, user uint32) bool {
	if before, ok := p.userOf[pid]; ok {
		user = before // a process does not escape its share by changing its user
	}
	if !p.Room(p.processes[pid], p.users[user]) {
		return false
	}
	p.Quota.Take()
	p.processes[pid]++
	p.userOf[pid] = user
	p.users[user]++
	return true
}

// Give gives a place of a process back.
func (p *ByProcess) Give(pid uint32) {
	p.Quota.Give()
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
func (p *ByProcess) Held(pid uint32) int { return p.processes[pid] }
