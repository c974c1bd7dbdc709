// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"math"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// setProcess names a process. It may come before or after the process's first events, and again
// when the name changes; empty fields of in change nothing. A zero Begin means the newest process
// of the pid; a Begin after its end starts the next one.
func (l *Ledger) setProcess(in Process) {
	if l.full() || l.manyProcesses() && !l.hasRoom(in.PID, in.Begin, in.User) {
		return
	}
	p := l.byPID[in.PID]
	if p == nil || in.Begin != 0 {
		p = l.instance(in.PID, in.Begin)
	}
	l.setUser(p, in.User)
	p.Comm, p.Exe, p.OwnRoot = cmp.Or(in.Comm, p.Comm), cmp.Or(in.Exe, p.Exe), in.OwnRoot || p.OwnRoot
	if in.Workload != (Workload{}) {
		p.Workload = in.Workload
	}
	if in.Devices != nil {
		p.devices = append([]string(nil), in.Devices...)
	}
}

// setUser sets the user of a process.
func (l *Ledger) setUser(p *process, user uint32) {
	if p.setUser(user) {
		l.ofUser[0]--
		l.ofUser[user]++
	}
}

// hasRoom reports whether an event or name of a pid can be booked: it belongs to a process in the
// books, or there is room for another one.
func (l *Ledger) hasRoom(pid uint32, time uint64, user uint32) bool {
	if p := l.byPID[pid]; p != nil && (p.End == 0 || time <= p.End) {
		return true
	}
	if l.quotas[tableProcesses].Room(0, l.ofUser[user]) {
		return true
	}
	l.warn(fmt.Sprintf("too many processes (at most %d per user): events of the rest are counted as lost", l.quotas[tableProcesses].Size()/quota.UserPart))
	return false
}

// manyProcesses reports whether one user can have so many processes that there is no room for
// another one of it.
func (l *Ledger) manyProcesses() bool {
	s := &l.quotas[tableProcesses]
	return s.Used() >= s.Size()/quota.UserPart
}

// known returns the process that had the pid at that time, nil if there is none. An event as old as
// the end of a process still belongs to it.
func (l *Ledger) known(pid uint32, time uint64) *process {
	p := l.byPID[pid]
	if p == nil || p.End != 0 && time > p.End {
		return nil
	}
	for p.older != nil && time <= p.older.End {
		p = p.older
		l.spend(1)
	}
	return p
}

// instance returns the process that had the pid at that time. A younger event begins the next.
func (l *Ledger) instance(pid uint32, time uint64) *process {
	p := l.known(pid, time)
	if p == nil {
		return l.begin(pid, time)
	}
	p.Begin = min(p.Begin, time)
	return p
}

// begin adds a process to the books.
func (l *Ledger) begin(pid uint32, time uint64) *process {
	p := &process{older: l.byPID[pid]}
	if l.follows {
		p.high.number = 1
	}
	p.member = &member{session: l.session, Process: Process{PID: pid, Begin: time}, number: l.numbers, user: new([tables]int32)}
	l.numbers++
	l.byPID[pid] = p
	l.procs = append(l.procs, p)
	l.alive = append(l.alive, p)
	l.quotas[tableProcesses].Take()
	l.ofUser[0]++
	if l.observer != nil {
		l.observer.Began(p.number, pid)
	}
	return p
}

// eachAlive calls do for the processes that have not ended, in the order in which they began.
func (l *Ledger) eachAlive(do func(p *process)) {
	l.spend(16 * len(l.alive))
	alive := l.alive[:0]
	for _, p := range l.alive {
		if p.End == 0 {
			alive = append(alive, p)
			do(p)
		}
	}
	clear(l.alive[len(alive):])
	l.alive = alive
}

// end ends a process.
func (l *Ledger) end(e *Event) {
	p := l.byPID[e.PID]
	if p == nil || p.End != 0 || p.older != nil && e.Time <= p.older.End {
		return
	}
	p.end(e.Time, e.Op == Exec)
	l.ended = append(l.ended, p)
	l.purgeAt = min(l.purgeAt, p.purgeTime())
}

// purge drops the entries of processes that ended a while ago.
func (l *Ledger) purge(now uint64) {
	l.spend(16 * len(l.ended))
	l.purgeAt = math.MaxUint64
	rest := l.ended[:0]
	for _, p := range l.ended {
		if at := p.purgeTime(); now < at {
			rest = append(rest, p)
			l.purgeAt = min(l.purgeAt, max(at, now+purgeStep))
		} else {
			p.purge()
		}
	}
	clear(l.ended[len(rest):])
	l.ended = rest
}

// forget has processes that ended before a time leave the books.
func (l *Ledger) forget(before uint64) {
	if l.full() {
		return
	}
	l.gone.Before = max(l.gone.Before, before)
	l.purge(max(before, l.newest))
	l.eachAlive((*process).compact) // none of those that leave is among them from now on
	l.gpus.forget()
	l.spend(len(l.procs))
	some := false
	for _, p := range l.procs {
		if p.purged && p.End < before {
			p.left, some = true, true
			l.gone.add(p)
		}
	}
	if !some {
		return
	}
	l.forgetWarnings()
	kept := make([]*process, 0, len(l.procs))
	for _, p := range l.procs {
		if p.left {
			l.leave(p)
			continue
		}
		if p.older != nil && p.older.left {
			p.older = nil // those that had the pid before ended earlier, and leave too
		}
		p.forgetOwners()
		kept = append(kept, p)
	}
	l.procs = kept
}

// leave drops a process with all that it holds.
func (l *Ledger) leave(p *process) {
	if l.byPID[p.PID] == p {
		delete(l.byPID, p.PID)
	}
	p.leave()
	l.quotas[tableProcesses].Give()
	if l.ofUser[p.User]--; l.ofUser[p.User] == 0 {
		delete(l.ofUser, p.User)
		delete(l.users, p.User)
	}
}
