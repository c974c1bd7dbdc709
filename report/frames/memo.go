// SPDX-License-Identifier: Apache-2.0

package frames

import "sync"

// maxMemo is how many answers a memo remembers; a training maps about 500 files.
const maxMemo = 8192

// memo remembers what a slow predicate answered of a path, as a few paths are asked for again and
// again.
type memo struct {
	is func(path string) bool

	mu    sync.Mutex
	known map[string]bool
}

func remember(is func(string) bool) *memo { return &memo{is: is, known: map[string]bool{}} }

func (m *memo) of(path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	yes, ok := m.known[path]
	if !ok {
		if len(m.known) == maxMemo {
			clear(m.known)
		}
		yes = m.is(path)
		m.known[path] = yes
	}
	return yes
}
