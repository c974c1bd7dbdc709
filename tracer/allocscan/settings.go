// SPDX-License-Identifier: Apache-2.0

package allocscan

import (
	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procenv"
)

// BookSettings books the version of a process's PyTorch and its settings: those that the allocator
// uses, or, before it has any, those of the environment. It may take seconds where the process
// stalls its readers.
func (s *Scanner) BookSettings(pid uint32) {
	defer s.Defects.Recovered(looking)
	s.bookSettings(pid)
}

func (s *Scanner) bookSettings(pid uint32) {
	in, err := deadline.Call(readTime, func() (ledger.PyTorch, error) { return s.settings(pid) })
	if err != nil {
		return // it is gone
	}
	tx := s.Sequencer.Begin()
	defer tx.Done()
	tx.Tell(in)
}

func (s *Scanner) settings(pid uint32) (in ledger.PyTorch, err error) {
	in = ledger.PyTorch{PID: pid, Time: clock.Now()}
	process, err := peek.Open(int(pid))
	if err != nil {
		return in, err
	}
	defer process.Close()
	in.Version = s.Version(pid)
	if in.Settings, in.InUse = allocator.Settings(process); in.InUse {
		return in, nil
	}
	variables, err := procenv.Read(pid)
	if variables == nil && err != nil {
		return in, err
	}
	for _, name := range [...]string{"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} {
		if text, ok := procenv.Lookup(variables, name); ok {
			in.Settings = text
			break
		}
	}
	return in, nil
}
