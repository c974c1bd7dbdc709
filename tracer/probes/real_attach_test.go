// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/arch/x86/x86asm"
	"golang.org/x/sys/unix"
)

// The kernel checks an instruction when it has a probe and a process maps it: it rejects
// instructions that it cannot single-step.
func TestRealProbesAreTakenByTheKernel(t *testing.T) {
	realFolder(t)
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	if err := features.HaveBPFLinkUprobeMulti(); err != nil {
		t.Skip(err) // attaching one probe at a time would take minutes
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, AttachType: ebpf.AttachTraceUprobeMulti, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	eachLayer(t, func(t *testing.T, list []*realLibrary) {
		for _, l := range list {
			l.probeAll(t, program)
		}
	})
}

// probeAll maps the library, probes all its rows, and looks for the breakpoints in its memory.
func (l *realLibrary) probeAll(t *testing.T, program *ebpf.Program) {
	f, err := os.Open(l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	code, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(code) }()
	var addresses []uint64
	before := map[uint64]byte{}
	for _, at := range l.rows.Found {
		addresses = append(addresses, at.Probe)
		before[at.Probe] = code[at.Probe]
		if runtime.GOARCH == "amd64" {
			checkBoundary(t, fmt.Sprintf("%s: %s", l.name, at.Name), code[at.Offset:at.Offset+64], int(at.Probe-at.Offset))
		}
	}
	executable, err := executableOf(f)
	if err != nil {
		t.Fatal(err)
	}
	probes, err := executable.UprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: addresses})
	if err != nil {
		t.Errorf("%s: %v", l.name, err)
		return
	}
	set := 0
	for _, at := range l.rows.Found {
		if code[at.Probe] == before[at.Probe] {
			t.Errorf("%s: no breakpoint in %s", l.name, at.Name)
			continue
		}
		set++
	}
	if err := probes.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("%-24s %3d probes taken", l.name, set)
}

// checkBoundary checks that a probe is at the start of an instruction, by decoding the function
// from its beginning.
func checkBoundary(t *testing.T, what string, code []byte, probe int) {
	for at := 0; ; {
		if at == probe {
			return
		}
		inst, err := x86asm.Decode(code[at:], 64)
		if err != nil || at > probe {
			t.Errorf("%s: +%d is not the start of an instruction", what, probe)
			return
		}
		at += inst.Len
	}
}
