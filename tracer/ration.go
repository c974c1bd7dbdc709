// SPDX-License-Identifier: Apache-2.0

package tracer

import "time"

// Ration divides what is done a few times a minute between processes: each has at most three in any minute, those of one user
// eight of ten, and the last one is kept for a process that has had none.
type Ration struct {
	granted []grant // of the last minute
}

type grant struct {
	at        time.Time
	pid, user uint32
}

const (
	rationPerMinute  = 10
	rationPerProcess = 3
	rationPerUser    = 8
)

// Allow reports whether a process may have one more now, and counts it. User is as in ledger.Process.
func (r *Ration) Allow(now time.Time, pid, user uint32) bool {
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
	most := rationPerMinute
	if ofProcess > 0 {
		most--
	}
	if len(kept) >= most || ofProcess >= rationPerProcess || ofUser >= rationPerUser {
		return false
	}
	r.granted = append(r.granted, grant{now, pid, user})
	return true
}
