// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/terminal"
)

// program is one run of a command line.
type program struct {
	args   []string
	failed error // what a command returns after it has written its results

	mu      sync.Mutex  // guards what follows
	skip    func() bool // ends what a signal may skip, and reports whether there was any
	restore func()      // gives the terminal back
	reads   bool        // files alone, so that the first signal ends it
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

// awaits has what a user reads of each command that is silent for a second, unless the work says
// something closer.
var awaits = map[string]string{
	"record": "writing the results", "report": "making the report", "leaks": "judging which lines leak", "explain": "dividing memory by purpose",
	"diff": "comparing", "compare": "comparing", ciName: "comparing the peaks", "export": "converting", "whatif": "replaying PyTorch's allocator",
	"fit": "replaying PyTorch's allocator with changes", "holders": "looking for holders", "snapshot": "reading PyTorch's allocator",
	"ps": "looking for processes that use GPUs", "check": "checking what this machine can trace",
}

// onlyReads reports whether the command reads files and traces nothing: there is nothing to end in
// order.
func (p *program) onlyReads() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads
}

// action runs a command, and shows on a terminal what it waits for meanwhile. With --json, a
// program reads the output, and nothing is shown.
func (p *program) action(c *cli.Context, run cli.ActionFunc) error {
	p.mu.Lock()
	p.reads = c.Args().Present() && !p.afterDashes(c) && c.Command.Name != "top" // which has a screen
	p.mu.Unlock()
	if c.Bool("json") {
		c.App.ErrWriter = terminal.Plain(c.App.ErrWriter)
	}
	if text := awaits[c.Command.Name]; text != "" && c.String("output") != "-" {
		defer terminal.Await(c.App.ErrWriter, text)()
	}
	return notAFile(c, run(c))
}
