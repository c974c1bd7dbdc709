// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

const (
	eventSize  = 64
	stackBytes = 127 * 8 // of the deepest stack that the kernel returns

	userStack = 1 << 8 // BPF_F_USER_STACK
	noWakeUp  = 1 << 0 // BPF_RB_NO_WAKEUP
)

// programs holds the programs of each kind of probe point; the multi ones attach through
// uprobe_multi links.
type programs struct {
	nothing, nothingMulti *ebpf.Program
	outermost, free       *ebpf.Program // without -stack: the same as nothing and nothingMulti
	scratch, events       *ebpf.Map
}

func loadPrograms(stack, multi bool) (p programs, err error) {
	load := func(name string, attach ebpf.AttachType, body asm.Instructions) *ebpf.Program {
		if err != nil {
			return nil
		}
		var program *ebpf.Program
		program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: name, Type: ebpf.Kprobe, AttachType: attach, License: "GPL", Instructions: append(body, asm.Mov.Imm(asm.R0, 0), asm.Return()),
		})
		if err != nil {
			err = fmt.Errorf("load %s: %w", name, err)
		}
		return program
	}
	newMap := func(spec ebpf.MapSpec) *ebpf.Map {
		if err != nil {
			return nil
		}
		var m *ebpf.Map
		if m, err = ebpf.NewMap(&spec); err != nil {
			err = fmt.Errorf("create map %s: %w", spec.Name, err)
		}
		return m
	}
	attach := ebpf.AttachNone
	if multi {
		attach = ebpf.AttachTraceUprobeMulti
	}
	p.scratch = newMap(ebpf.MapSpec{Name: "scratch", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: stackBytes, MaxEntries: 1})
	p.events = newMap(ebpf.MapSpec{Name: "events", Type: ebpf.RingBuf, MaxEntries: 1 << 24})
	p.nothing = load("nothing", ebpf.AttachNone, nil)
	p.nothingMulti = load("nothing_multi", attach, nil)
	p.outermost, p.free = p.nothing, p.nothingMulti
	if stack && err == nil {
		p.outermost = load("stack_and_event", ebpf.AttachNone, append(walkStack(p.scratch), sendEvent(p.events)...))
		p.free = load("event", attach, sendEvent(p.events))
	}
	return p, err
}

func (p *programs) close() {
	for _, program := range []*ebpf.Program{p.nothing, p.nothingMulti, p.outermost, p.free} {
		_ = program.Close() // also for nil and closed ones
	}
	_, _ = p.scratch.Close(), p.events.Close()
}

// walkStack calls bpf_get_stack(ctx, scratch, stackBytes, BPF_F_USER_STACK). It keeps ctx in R6.
func walkStack(scratch *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, scratch.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "walked"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R0),
		asm.Mov.Imm(asm.R3, stackBytes),
		asm.Mov.Imm(asm.R4, userStack),
		asm.FnGetStack.Call(),
		asm.Mov.Reg(asm.R7, asm.R0).WithSymbol("walked"),
	}
}

// sendEvent reserves, fills and submits an event without waking up the reader.
func sendEvent(events *ebpf.Map) asm.Instructions {
	code := asm.Instructions{
		asm.LoadMapPtr(asm.R1, events.FD()),
		asm.Mov.Imm(asm.R2, eventSize),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "sent"),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.Mov.Imm(asm.R7, 0),
	}
	for at := int16(16); at < eventSize; at += 8 {
		code = append(code, asm.StoreMem(asm.R8, at, asm.R7, asm.DWord))
	}
	return append(code,
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.R8, 0, asm.R0, asm.DWord),
		asm.FnGetCurrentPidTgid.Call(),
		asm.StoreMem(asm.R8, 8, asm.R0, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R8),
		asm.Mov.Imm(asm.R2, noWakeUp),
		asm.FnRingbufSubmit.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("sent"),
	)
}
