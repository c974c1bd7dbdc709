// SPDX-License-Identifier: Apache-2.0

package ledger

// Reasons in Stats.LostFor. They are codes, which captures, JSON and metrics keep; captures of older
// versions have sentences instead. Package report has the sentences.
const (
	LostBuffersFull    = "buffers_full"        // of events from the kernel
	LostShareUsed      = "share_of_buffers"    // the process's share of them was used
	LostTablesFull     = "tables_full"         // of threads or allocators, in the kernel
	LostNoMemory       = "kernel_memory"       // for the state of a thread or allocator
	LostTooNested      = "too_many_nested"     // traced calls
	LostUnreadable     = "unreadable_results"  // the memory with the call's results
	LostUndecodable    = "undecodable"         // it could not be decoded or booked
	LostSkipped        = "program_not_run"     // the kernel skipped the probe's program
	LostNoRoomInLedger = "no_room_for_process" // the ledger's own
)

// losses has what was lost since the attach, by the latest counters of the kernel half.
type losses struct {
	events   map[uint32]uint64 // Stats.LostBy
	stacks   map[uint32]uint64 // Stats.StacksBy
	homeless uint64            // events of processes beyond the limit
}

// setStats replaces the counters that the kernel half keeps since the attach: Lost and LostFor (plus
// the ledger's own), LostBy, Stacks, NoStack, Missing, StacksBy, Torn and Truncated. It ignores the
// others.
func (l *Ledger) setStats(s Stats) {
	homeless := l.lost.homeless
	l.stats.Lost, l.stats.Stacks, l.stats.NoStack, l.stats.Torn = s.Lost+homeless, s.Stacks, s.NoStack, s.Torn
	l.stats.LostFor, l.stats.Missing, l.stats.Truncated = copyCounts(s.LostFor), copyCounts(s.Missing), copyCounts(s.Truncated)
	if homeless > 0 && l.stats.LostFor != nil {
		l.stats.LostFor[LostNoRoomInLedger] = homeless
	}
	countBy(l.byPID, l.lost.events, s.LostBy, func(p *process, n uint64) { p.Lost += n })
	countBy(l.byPID, l.lost.stacks, s.StacksBy, func(p *process, n uint64) { p.stacksLost += n })
}

// countBy adds the growth of totals by pid to the processes that had the pid meanwhile. It keeps the
// totals of pids that are not known any more for as long as they are reported.
func countBy(byPID map[uint32]*process, before, now map[uint32]uint64, add func(p *process, n uint64)) {
	for pid, total := range now {
		p := byPID[pid]
		last, counted := before[pid]
		if p == nil && !counted {
			continue
		}
		more := total - last
		if total < last {
			more = total // another process with the pid counts from 0
		}
		before[pid] = total
		for more > 0 && p != nil && !p.purged {
			add(p, more) // to each of them, since it could be any
			p = p.older
		}
	}
	for pid := range before {
		if _, reported := now[pid]; !reported {
			delete(before, pid)
		}
	}
}

func copyCounts(m map[string]uint64) map[string]uint64 {
	if len(m) == 0 {
		return nil
	}
	c := make(map[string]uint64, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}
