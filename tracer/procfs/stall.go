// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// A process can stall whoever looks at its mappings or its memory: reading either takes its
// mmap_lock, which it holds as long as it likes by unmapping a page of a FUSE file system of its
// own. A process that stalled one call is left alone for a pause, which doubles with each further
// one.
const (
	leastPause = time.Second
	mostPause  = time.Minute
)

// The processes of one user may stall calls for patienceOfUser in a row. Then each call waits only
// for hurried, until time has passed: a tenth of it counts.
const (
	patienceOfUser = 5 * time.Second
	hurried        = 50 * time.Millisecond
	recovery       = 10
)

// maxStalls bounds the processes that are remembered.
const maxStalls = 4096

// stalls remembers which processes stalled calls.
type stalls struct {
	now    func() time.Time
	user   func(pid uint32) uint32 // User, or an imitation of one in tests
	ticks  func(pid uint32) uint64 // likewise, StartTicks
	mu     sync.Mutex
	by     map[uint32]*stall // by pid
	users  map[uint32]*lostToUser
	shares quota.Quota // of the calls that may be stuck
}

// stall is a process that stalled a call.
type stall struct {
	ticks uint64    // see StartTicks
	next  time.Time // of looking again
	pause time.Duration
	stuck int // calls that have not returned
	total uint64
}

// lostToUser is what the processes of a user cost.
type lostToUser struct {
	stuck int           // calls that have not returned
	time  time.Duration // that calls waited in vain, at the time at
	at    time.Time
}

func newStalls() *stalls {
	return &stalls{
		now: time.Now, user: User, ticks: StartTicks, by: map[uint32]*stall{}, users: map[uint32]*lostToUser{},
		shares: quota.New(deadline.MaxStuck),
	}
}

var all = newStalls()

// Call runs f, which looks at a process that may stall it, and waits at most limit, as
// deadline.Call does: a busy machine makes no stall. It returns deadline.ErrStuck after that, and
// at once for a process that stalled a call before and whose pause is not over. Pid 0 stands for a
// look at all processes. The calls that hang are shared out by user, as are the tables of the
// ledger. As for deadline.Call, f may run on after the return.
func Call[T any](pid uint32, limit time.Duration, f func() (T, error)) (T, error) {
	return callOf(all, call{pid: pid}, limit, f)
}

// CallUnhurried is Call for what takes long without anybody's fault: its limit stays as it is,
// however long the user's processes have stalled other calls.
func CallUnhurried[T any](pid uint32, limit time.Duration, f func() (T, error)) (T, error) {
	return callOf(all, call{pid: pid, unhurried: true}, limit, f)
}

func callOf[T any](s *stalls, c call, limit time.Duration, f func() (T, error)) (T, error) {
	limit, err := s.begin(&c, limit)
	if err != nil {
		var none T
		return none, err
	}
	value, err := deadline.Call(limit, func() (T, error) {
		defer s.returned(&c)
		return f()
	})
	if deadline.Stalled(err) {
		s.timedOut(&c, limit)
	} else if c.known && !errors.Is(err, deadline.ErrStuck) {
		s.recovered(c.pid)
	}
	return value, err
}

// call is a call of f. The lock of stalls guards its flags.
type call struct {
	pid               uint32
	unhurried         bool // see CallUnhurried
	known             bool // the process stalled a call before
	user              uint32
	late, hasReturned bool
}

// begin returns how long a call may take.
func (s *stalls) begin(c *call, limit time.Duration) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.by) == 0 {
		return limit, nil
	}
	now := s.now()
	if x := s.by[c.pid]; x != nil {
		switch {
		case x.ticks != s.ticks(c.pid):
			delete(s.by, c.pid) // another process has the pid
		case x.stuck > 0 || now.Before(x.next):
			return 0, deadline.ErrStuck
		default:
			c.known = true
		}
	}
	u := s.users[s.user(c.pid)]
	if u == nil {
		return limit, nil
	}
	if !s.shares.Room(0, u.stuck) {
		return 0, deadline.ErrFull
	}
	if u.lost(now) >= patienceOfUser && !c.unhurried {
		limit = min(limit, hurried)
	}
	return limit, nil
}

// timedOut notes that a call took longer than limit.
func (s *stalls) timedOut(c *call, limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	ticks := s.ticks(c.pid)
	x := s.by[c.pid]
	if x == nil || x.ticks != ticks {
		s.makeRoom(now)
		x = &stall{ticks: ticks}
		s.by[c.pid] = x
	}
	x.total++
	x.pause = min(max(2*x.pause, leastPause), mostPause)
	x.next = now.Add(x.pause)
	c.user, c.late = s.user(c.pid), true
	u := s.users[c.user]
	if u == nil {
		u = &lostToUser{}
		s.users[c.user] = u
	}
	u.time, u.at = u.lost(now)+limit, now
	if !c.hasReturned {
		x.stuck++
		u.stuck++
		s.shares.Take()
	}
}

// returned notes that a call is over, in time or not.
func (s *stalls) returned(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.hasReturned = true
	if !c.late {
		return
	}
	s.shares.Give()
	s.users[c.user].stuck--
	if x := s.by[c.pid]; x != nil && x.stuck > 0 {
		x.stuck--
	}
}

// recovered forgets a process that answered in time.
func (s *stalls) recovered(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.by[pid]; x != nil && x.stuck == 0 {
		delete(s.by, pid)
	}
}

// lost returns for how long the user's processes have stalled calls lately.
func (u *lostToUser) lost(now time.Time) time.Duration {
	return max(0, u.time-now.Sub(u.at)/recovery)
}

// makeRoom forgets what is over, and any process if that is not enough.
func (s *stalls) makeRoom(now time.Time) {
	maps.DeleteFunc(s.users, func(_ uint32, u *lostToUser) bool { return u.stuck == 0 && u.lost(now) == 0 })
	if len(s.by) < maxStalls {
		return
	}
	maps.DeleteFunc(s.by, func(pid uint32, x *stall) bool { return x.stuck == 0 && x.ticks != s.ticks(pid) })
	for pid := range s.by {
		if len(s.by) < maxStalls {
			return
		}
		delete(s.by, pid)
	}
}

// Stall is a process that stalled a look at its mappings or its memory, and has not answered since.
type Stall struct {
	PID   uint32
	Calls uint64        // so many have timed out
	Pause time.Duration // until it is looked at again
}

// Pause returns when a process that stalled a call is looked at again, 0 for any other.
func Pause(pid uint32) time.Duration { return all.pause(pid) }

func (s *stalls) pause(pid uint32) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.by[pid]; x != nil && x.ticks == s.ticks(pid) {
		return max(0, x.next.Sub(s.now()))
	}
	return 0
}

// StallsAgain reports whether the latest two calls for a process timed out, or more, or one hangs
// longer than the pause after it.
func StallsAgain(pid uint32) bool { return all.stallsAgain(pid) }

func (s *stalls) stallsAgain(pid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.by[pid]
	return x != nil && x.ticks == s.ticks(pid) && (x.pause > leastPause || x.stuck > 0 && !s.now().Before(x.next))
}

// Stalls lists the running processes that stall whoever looks at them, ordered by pid.
func Stalls() []Stall { return all.list() }

func (s *stalls) list() []Stall {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var list []Stall
	for pid, x := range s.by {
		if pid == 0 {
			continue // a look at all
		}
		if x.ticks != s.ticks(pid) {
			if x.stuck == 0 {
				delete(s.by, pid)
			}
			continue
		}
		list = append(list, Stall{pid, x.total, max(0, x.next.Sub(now))})
	}
	slices.SortFunc(list, func(a, b Stall) int { return int(a.PID) - int(b.PID) })
	return list
}
