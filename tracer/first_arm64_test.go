// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/probepoint"
)

// TestFirstInstructionsAreSimulatedOrStepped counts the hits of a probe on each kind of first
// instruction, and times them: what probepoint.Decode calls emulated must be cheaper than what the
// kernel steps. It logs a table for docs/kernels.md.
func TestFirstInstructionsAreSimulatedOrStepped(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	const calls = 2000
	program := filepath.Join(string(fakecuda.Build(t)), "first_arm64")
	bare := timesOfFirst(t, program, calls)
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	hits, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: uint32(len(symbols))})
	if err != nil {
		t.Fatal(err)
	}
	defer hits.Close()
	counter := counterOf(t, hits)
	defer counter.Close()
	executable, err := link.OpenExecutable(program)
	if err != nil {
		t.Fatal(err)
	}
	index, refused := map[string]uint32{}, map[string]error{}
	emulated := map[string]bool{}
	for i, s := range symbols {
		name, ok := strings.CutPrefix(s.Name, "first_")
		if !ok || elf.ST_TYPE(s.Info) != elf.STT_FUNC {
			continue
		}
		index[name] = uint32(i)
		text := file.Sections[s.Section]
		code := make([]byte, 4)
		if _, err := text.ReadAt(code, int64(s.Value-text.Addr)); err != nil {
			t.Fatal(err)
		}
		_, emulated[name], _ = probepoint.Decode(elf.EM_AARCH64, code)
		l, err := executable.Uprobe(s.Name, counter, &link.UprobeOptions{Cookie: uint64(i)})
		if err != nil {
			refused[name] = err
			continue
		}
		defer l.Close()
	}
	probed := timesOfFirst(t, program, calls)
	dearest, cheapest := 0.0, 1e9
	for name, at := range index {
		var n uint64
		if err := hits.Lookup(at, &n); err != nil {
			t.Fatal(err)
		}
		cost := probed[name] - bare[name]
		what := "stepped"
		switch {
		case n == 0:
			what = fmt.Sprint("rejected ", refused[name])
		case n != calls:
			t.Errorf("%s: %d hits, want %d", name, n, calls)
		case emulated[name]:
			what = "simulated"
			dearest = max(dearest, cost)
		case name == "nop": // simulated from Linux 6.13 on
			what = "nop"
		default:
			cheapest = min(cheapest, cost)
		}
		if emulated[name] && n == 0 {
			t.Errorf("%s: the kernel rejects the probe", name)
		}
		t.Logf("first: %s: %s; %.0f ns", name, what, cost)
	}
	if len(index) < 15 || dearest >= cheapest {
		t.Errorf("%d instructions: the dearest simulated one takes %.0f ns, the cheapest stepped one %.0f", len(index), dearest, cheapest)
	}
}

// timesOfFirst runs first_arm64, and returns the nanoseconds per call by instruction.
func timesOfFirst(t *testing.T, program string, calls int) map[string]float64 {
	t.Helper()
	out, err := exec.Command(program, strconv.Itoa(calls)).Output()
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]float64{}
	for line := range bytes.Lines(out) {
		name, ns, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if list[name], err = strconv.ParseFloat(ns, 64); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	return list
}

// counterOf loads a program that adds 1 to the element of hits that its cookie names.
func counterOf(t *testing.T, hits *ebpf.Map) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Kprobe, License: "GPL", Instructions: asm.Instructions{
		asm.FnGetAttachCookie.Call(),
		asm.StoreMem(asm.RFP, -4, asm.R0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, hits.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
