// SPDX-License-Identifier: Apache-2.0

package main

import "sync"

// program is one run of a command line.
type program struct {
	args   []string
	failed error // what a command returns after it has written its results

	mu      sync.Mutex  // guards what follows
	skip    func() bool // ends what a signal may skip, and reports whether there was any
	restore func()      // gives the terminal back
}

func (p *program) fail(err error) { p.failed = err }

func (p *program) setSkip(skip func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skip = skip
}

func (p *program) setRestore(restore func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restore = restore
}

// skipOne ends what may be skipped, and reports whether there was any.
func (p *program) skipOne() bool {
	p.mu.Lock()
	skip := p.skip
	p.mu.Unlock()
	return skip != nil && skip()
}

// restoreTerminal gives the terminal back, if a screen has it.
func (p *program) restoreTerminal() {
	p.mu.Lock()
	restore := p.restore
	p.mu.Unlock()
	if restore != nil {
		restore()
	}
}
