// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"slices"
	"sync"
)

// maxProblems limits the list of problems.
const maxProblems = 16

// problems collects sentences for Unwinder.Problems, each once. Its zero value is empty, and any
// goroutine may call its methods.
type problems struct {
	mu   sync.Mutex // held briefly
	list []problem
}

// problem is a sentence about a process, or about none with pid 0.
type problem struct {
	pid  uint32
	text string
}

// add adds a text about a process, or about none with pid 0, unless there are maxProblems. Texts
// about a process stay until forget finds that it has ended.
func (p *problems) add(pid uint32, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := (problem{pid, text}); len(p.list) < maxProblems && !slices.Contains(p.list, x) {
		p.list = append(p.list, x)
	}
}

// forget drops the texts about processes that have ended.
func (p *problems) forget(ended func(pid uint32) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(p.list, func(x problem) bool { return x.pid != 0 && ended(x.pid) })
}

// texts returns all texts, in the order in which they were added.
func (p *problems) texts() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.list {
		list = append(list, x.text)
	}
	return list
}
