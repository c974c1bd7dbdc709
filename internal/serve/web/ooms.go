// SPDX-License-Identifier: Apache-2.0

package web

import (
	"sync"

	"github.com/vramprof/vramprof/report"
)

const maxKeptOOMs = 100

// oomList keeps the latest out-of-memory errors for clients.
type oomList struct {
	mu   sync.Mutex
	list []report.OOM
	next uint64 // number of the one after the last of list
}

func (l *oomList) add(o report.OOM) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	if l.list = append(l.list, o); len(l.list) > maxKeptOOMs {
		l.list = append(l.list[:0], l.list[1:]...)
	}
}

// since returns the errors from a number on, none for a client that has not asked before, and the
// next number.
func (l *oomList) since(number uint64, again bool) ([]report.OOM, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(l.next-min(number, l.next), uint64(len(l.list)))
	if !again {
		n = 0
	}
	return append([]report.OOM(nil), l.list[uint64(len(l.list))-n:]...), l.next
}
