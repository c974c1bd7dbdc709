// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// stubs creates small programs that replace attach cookies (before Linux 5.15). Each stub writes
// the cookie of its probe to a per-CPU map, and tail-calls the program that all probes of its kind
// share. No other program runs in between, as these kernels do not preempt uprobe programs.
type stubs struct {
	cookie *ebpf.Map // the programs', see bpf/attach_cookie.h
	next   *ebpf.Map // the shared programs; the kernel clears the map when it is closed
	slots  map[*ebpf.Program]int32
}

func newStubs(cookie *ebpf.Map, programs ...*ebpf.Program) (*stubs, error) {
	next, err := ebpf.NewMap(&ebpf.MapSpec{Name: "shared_programs", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: uint32(len(programs))})
	if err != nil {
		return nil, fmt.Errorf("create the array of shared programs: %w", err)
	}
	s := &stubs{cookie: cookie, next: next, slots: map[*ebpf.Program]int32{}}
	for i, p := range programs {
		if err := next.Put(uint32(i), uint32(p.FD())); err != nil {
			next.Close()
			return nil, fmt.Errorf("write the array of shared programs: %w", err)
		}
		s.slots[p] = int32(i)
	}
	return s, nil
}

// of loads a stub, which the caller must close.
func (s *stubs) of(program *ebpf.Program, cookie uint64) (*ebpf.Program, error) {
	slot, ok := s.slots[program]
	if !ok {
		return nil, fmt.Errorf("program %v is not one of the shared programs", program)
	}
	const context = asm.R6
	stub, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "vramprof_stub", Type: ebpf.Kprobe, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(context, asm.R1),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, s.cookie.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.LoadImm(asm.R1, int64(cookie), asm.DWord),
			asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
			asm.Mov.Reg(asm.R1, context),
			asm.LoadMapPtr(asm.R2, s.next.FD()),
			asm.Mov.Imm(asm.R3, slot),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
			asm.Return(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("load a program for cookie %d: %w", cookie, err)
	}
	return stub, nil
}

func (s *stubs) close() {
	if s != nil {
		s.next.Close()
	}
}
