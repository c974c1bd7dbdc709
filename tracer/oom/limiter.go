// SPDX-License-Identifier: Apache-2.0

package oom

import (
	"slices"
	"time"
)

// Limiter divides records between processes: at most ten in any minute, three of them of one
// process and eight of one user, and the last one is kept for a process that has had none. It has
// no lock.
type Limiter struct {
	granted []grant // of the last minute
}

type grant struct {
	at        time.Time
	pid, user uint32
}

const (
	perMinute  = 10
	perProcess = 3
	perUser    = 8
)

// Allow reports whether a process may have one more now, and counts it. User is as in
// ledger.Process.
func (r *Limiter) Allow(now time.Time, pid, user uint32) bool {
	kept := r.granted[:0]
	var ofProcess, ofUser int
	for _, g := range r.granted {
		if now.Sub(g.at) >= time.Minute {
			continue
		}
		kept = append(kept, g)
		if g.pid == pid {
			ofProcess++
		}
		if g.user == user {
			ofUser++
		}
	}
	r.granted = kept
	most := perMinute
	if ofProcess > 0 {
		most--
	}
	if len(kept) >= most || ofProcess >= perProcess || ofUser >= perUser {
		return false
	}
	r.granted = append(r.granted, grant{now, pid, user})
	return true
}

// Return takes back what was allowed a process at a time, as it was not needed.
func (r *Limiter) Return(at time.Time, pid uint32) {
	if i := slices.IndexFunc(r.granted, func(g grant) bool { return g.pid == pid && g.at.Equal(at) }); i >= 0 {
		r.granted = slices.Delete(r.granted, i, i+1)
	}
}
