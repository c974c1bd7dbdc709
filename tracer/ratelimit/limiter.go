// SPDX-License-Identifier: Apache-2.0

// Package ratelimit divides what may happen in a minute between processes and users.
package ratelimit

import (
	"slices"
	"time"
)

// Limits are how much of something may happen in any minute: in all, of one process, and of one
// user. The last of the minute is kept for a process that has had none.
type Limits struct{ All, OfProcess, OfUser int }

// Halved returns limits of which one process has a third and one user half, at least one each.
func Halved(all int) Limits { return Limits{All: all, OfProcess: (all + 2) / 3, OfUser: (all + 1) / 2} }

// Limiter grants at most Limits. It has no lock.
type Limiter struct {
	limits  Limits
	granted []grant // of the last minute
}

type grant struct {
	at        time.Time
	pid, user uint32
}

// New returns a Limiter that has granted nothing.
func New(limits Limits) *Limiter { return &Limiter{limits: limits} }

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
	most := r.limits.All
	if ofProcess > 0 {
		most--
	}
	if len(kept) >= most || ofProcess >= r.limits.OfProcess || ofUser >= r.limits.OfUser {
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
