// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
)

// caller calls each function in its arguments once. Without a driver in the kernel, and before
// cuInit, they only return an error.
const caller = `
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static long parameters[8]; /* cuCtxCreate_v4 reads them before anything else */
int main(int n, char **argument)
{
	void *library = dlopen(argument[1], RTLD_NOW);
	if (!library)
		return fprintf(stderr, "%s\n", dlerror()), 1;
	puts("ready");
	fflush(stdout);
	getchar();
	for (int i = 2; i < n; i++) {
		int (*function)(long, long *, long, long, long, long) = dlsym(library, argument[i]);
		if (!function || function(0, strcmp(argument[i], "cuCtxCreate_v4") ? 0 : parameters, 0, 0, 0, 0) < 0)
			return fprintf(stderr, "%s\n", argument[i]), 1;
	}
	return 0;
}
`

// A probe after the first instructions of a stub that ends with a jump must see the call and its
// return. This runs NVIDIA's code, whose functions fail without a GPU.
func TestRealCallsAreSeen(t *testing.T) {
	realFolder(t)
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	if err := features.HaveBPFLinkUprobeMulti(); err != nil {
		t.Skip(err)
	}
	if _, err := os.Stat("/proc/driver/nvidia"); err == nil {
		t.Skip("this machine has a driver: the calls might succeed")
	}
	program := filepath.Join(t.TempDir(), "caller")
	if err := os.WriteFile(program+".c", []byte(caller), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-o", program, program+".c", "-ldl").CombinedOutput(); err != nil {
		t.Skipf("gcc: %v\n%s", err, out)
	}
	eachLayer(t, func(t *testing.T, list []*realLibrary) {
		for _, l := range list {
			calls, returns, err := l.call(t, program)
			if err != nil {
				t.Logf("%-24s cannot be loaded here: %v", l.name, err)
				continue
			}
			for i, at := range l.rows.Found {
				if calls[i] != 1 || returns[i] != 1 {
					t.Errorf("%s: %d calls and %d returns of %s seen, want 1", l.name, calls[i], returns[i], at.Name)
				}
			}
			t.Logf("%-24s %3d functions called", l.name, len(l.rows.Found))
		}
	})
}

// call runs the program on all rows, and counts the calls and returns that the probes see. It
// returns an error if the library cannot be loaded: old ones need other libraries.
func (l *realLibrary) call(t *testing.T, program string) (calls, returns []uint64, err error) {
	t.Helper()
	arguments := []string{l.path}
	options := &link.UprobeMultiOptions{}
	for i, at := range l.rows.Found {
		arguments = append(arguments, at.Name)
		options.Addresses = append(options.Addresses, at.Probe)
		options.Cookies = append(options.Cookies, uint64(i))
	}
	command := exec.Command(program, arguments...)
	said := &strings.Builder{}
	command.Stderr = said
	start, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	ready, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		_ = command.Wait()
		return nil, nil, errors.New(said.String())
	}
	options.PID = uint32(command.Process.Pid)
	executable, err := link.OpenExecutable(l.path)
	if err != nil {
		t.Fatal(err)
	}
	read := map[bool]func() []uint64{}
	for isReturn, attach := range map[bool]func([]string, *ebpf.Program, *link.UprobeMultiOptions) (link.Link, error){
		false: executable.UprobeMulti, true: executable.UretprobeMulti,
	} {
		counter, counts := newCounter(t, len(l.rows.Found))
		probes, err := attach(nil, counter, options)
		if err != nil {
			t.Fatalf("%s: %v", l.name, err)
		}
		defer probes.Close()
		read[isReturn] = counts
	}
	fmt.Fprintln(start)
	if err := command.Wait(); err != nil {
		t.Errorf("%s: the caller: %v: %s", l.name, err, said)
	}
	return read[false](), read[true](), nil
}

// newCounter loads a program that counts its runs for each cookie.
func newCounter(t *testing.T, n int) (*ebpf.Program, func() []uint64) {
	t.Helper()
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: uint32(n)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counts.Close() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, AttachType: ebpf.AttachTraceUprobeMulti, License: "GPL",
		Instructions: asm.Instructions{
			asm.FnGetAttachCookie.Call(),
			asm.StoreMem(asm.RFP, -4, asm.R0, asm.Word),
			asm.LoadMapPtr(asm.R1, counts.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return program, func() []uint64 {
		list := make([]uint64, n)
		for i := range list {
			if err := counts.Lookup(uint32(i), &list[i]); err != nil {
				t.Fatal(err)
			}
		}
		return list
	}
}
