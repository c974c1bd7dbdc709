// SPDX-License-Identifier: Apache-2.0

package stacks

import "sync"

// Limits of Makers: threads that a process has at a time, and all processes.
const (
	maxThreadsOfProcess = 1 << 12
	maxThreads          = 1 << 15
)

// Makers knows which call created a thread that a library uses for itself, so that what such a
// thread allocates has the line of the user's code that called the library. Any goroutine may call
// its methods; the zero value is ready.
type Makers struct {
	mu    sync.Mutex
	by    map[uint32]map[uint32]uint64 // by pid and thread: the stack of the call that created it
	count int
}

// Add notes that a thread of a process has created another one, in a call with a stack. If the
// first was itself created so, its stack goes on with that of its own maker. A thread beyond the
// limits has no maker.
func (m *Makers) Add(store *Store, pid, user, maker, thread uint32, stack uint64) {
	if stack == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	threads := m.by[pid]
	if outer := threads[maker]; outer != 0 {
		stack = store.Join(pid, user, stack, outer)
	}
	if _, known := threads[thread]; !known {
		if len(threads) == maxThreadsOfProcess || m.count == maxThreads {
			return
		}
		m.count++
	}
	if threads == nil {
		threads = map[uint32]uint64{}
		if m.by == nil {
			m.by = map[uint32]map[uint32]uint64{}
		}
		m.by[pid] = threads
	}
	threads[thread] = stack
}

// Of returns the stack of the call that created a thread, 0 if that is unknown.
func (m *Makers) Of(pid, thread uint32) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.by[pid][thread]
}

// Ended forgets the threads of a process that has ended, or executes another program.
func (m *Makers) Ended(pid uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count -= len(m.by[pid])
	delete(m.by, pid)
}

// Forget forgets threads that have ended: lives reports whether a process has a thread.
func (m *Makers) Forget(lives func(pid, thread uint32) bool) {
	m.mu.Lock()
	list := map[uint32][]uint32{}
	for pid, threads := range m.by {
		for thread := range threads {
			list[pid] = append(list[pid], thread)
		}
	}
	m.mu.Unlock()
	for pid, threads := range list {
		for _, thread := range threads {
			if lives(pid, thread) {
				continue
			}
			m.mu.Lock()
			if _, known := m.by[pid][thread]; known {
				delete(m.by[pid], thread)
				m.count--
			}
			m.mu.Unlock()
		}
	}
}

// InUse adds the stacks of makers.
func (m *Makers) InUse(add func(id uint64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, threads := range m.by {
		for _, stack := range threads {
			add(stack)
		}
	}
}
