// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
)

//go:generate selftest/build.sh

var (
	// ErrReturnProbeKills means that return probes must not be used on this kernel. From 6.11.0 to
	// 6.12.13 and from 6.13.0 to 6.13.2, return probes make a system call that seccomp filters do
	// not know (opensnitch#1205, systemd#34615).
	ErrReturnProbeKills = errors.New("this kernel kills programs under seccomp when a return probe fires")

	// ErrNotApplicable means that there is no self-test for this machine.
	ErrNotApplicable = errors.New("self-test not applicable")

	// errProgramFile means that this file cannot be probed or started; another kind of file may
	// work.
	errProgramFile = errors.New("self-test program")
)

// From selftest/selftest.S.
const (
	selfTestCalls  = 8
	exitNoFilter   = 100
	exitWrongValue = 101
)

// ReturnProbeSelfTest verifies that uprobes work and that return probes do not kill programs under
// seccomp filters. It runs a tiny program under such a filter with both kinds of probes; other
// processes are not touched. It needs the privileges of tracing. The probes are gone shortly after
// it returns.
func ReturnProbeSelfTest(ctx context.Context) error {
	if len(selfTestProgram) == 0 {
		return fmt.Errorf("%w: return probes make no system call on this architecture", ErrNotApplicable)
	}
	return selfTest(ctx, selfTestProgram)
}

func selfTest(ctx context.Context, program []byte) error {
	symbol, err := probedOffset(program)
	if err != nil {
		return err
	}
	counter, err := newCounter()
	if err != nil {
		return err
	}
	defer counter.close()
	for _, create := range []func([]byte) (*programFile, error){inMemory, inTempDir} {
		if err = counter.trial(ctx, create, program, symbol); !errors.Is(err, errProgramFile) {
			return err
		}
		if err := counter.reset(); err != nil {
			return err
		}
	}
	return err
}

func probedOffset(program []byte) (uint64, error) {
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return 0, err
	}
	symbols, err := file.Symbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == "probed" {
			return s.Value - file.Progs[0].Vaddr + file.Progs[0].Off, nil
		}
	}
	return 0, errors.New("self-test program lacks its function")
}

// counter holds the programs and the hits of the probe [0] and the return probe [1].
type counter struct {
	hits     *ebpf.Map
	programs [2]*ebpf.Program
	multi    bool // the probes are uprobe_multi links, as in tracing
}

func newCounter() (*counter, error) {
	c := &counter{multi: features.HaveBPFLinkUprobeMulti() == nil}
	var err error
	c.hits, err = ebpf.NewMap(&ebpf.MapSpec{Name: "selftest_hits", Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("create a BPF map: %w", err)
	}
	for i := range c.programs {
		attach := ebpf.AttachNone
		if c.multi {
			attach = ebpf.AttachTraceUprobeMulti
		}
		c.programs[i], err = ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "selftest", Type: ebpf.Kprobe, AttachType: attach, License: "Apache-2.0",
			Instructions: asm.Instructions{
				asm.LoadMapValue(asm.R1, c.hits.FD(), uint32(8*i)),
				asm.Mov.Imm(asm.R2, 1),
				asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
				asm.Mov.Imm(asm.R0, 0),
				asm.Return(),
			},
		})
		if err != nil {
			c.close()
			return nil, fmt.Errorf("load a BPF program: %w", err)
		}
	}
	return c, nil
}

func (c *counter) close() {
	c.hits.Close()
	for _, p := range c.programs {
		if p != nil {
			p.Close()
		}
	}
}

func (c *counter) reset() error { return c.hits.Put(uint32(0), [2]uint64{}) }

// trial runs the program once, from a file made by create.
func (c *counter) trial(ctx context.Context, create func([]byte) (*programFile, error), program []byte, symbol uint64) error {
	file, err := create(program)
	if err != nil {
		return fmt.Errorf("%w: %w", errProgramFile, err)
	}
	defer file.remove()
	links, err := c.attach(file.path, symbol)
	defer func() {
		for _, l := range links {
			go l.Close() // waits some 40 ms for other processors
		}
	}()
	if err != nil {
		return fmt.Errorf("attach to %w: %w", errProgramFile, err)
	}
	if err := run(ctx, file.path); err != nil {
		return err
	}
	var hits [2]uint64
	if err := c.hits.Lookup(uint32(0), &hits); err != nil {
		return fmt.Errorf("read a BPF map: %w", err)
	}
	if hits != [2]uint64{selfTestCalls, selfTestCalls} {
		return fmt.Errorf("uprobes do not work: they caught %d entries and %d returns of %d calls", hits[0], hits[1], selfTestCalls)
	}
	return nil
}

func (c *counter) attach(path string, symbol uint64) (links []link.Link, err error) {
	executable, err := link.OpenExecutable(path)
	if err != nil {
		return nil, err
	}
	var entry, exit link.Link
	if c.multi {
		entry, err = executable.UprobeMulti(nil, c.programs[0], &link.UprobeMultiOptions{Addresses: []uint64{symbol}})
	} else {
		entry, err = executable.Uprobe("", c.programs[0], &link.UprobeOptions{Address: symbol})
	}
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	links = append(links, entry)
	if c.multi {
		exit, err = executable.UretprobeMulti(nil, c.programs[1], &link.UprobeMultiOptions{Addresses: []uint64{symbol}})
	} else {
		exit, err = executable.Uretprobe("", c.programs[1], &link.UprobeOptions{Address: symbol})
	}
	if err != nil {
		return links, fmt.Errorf("return probe: %w", err)
	}
	return append(links, exit), nil
}

// run starts the program and interprets its exit status.
func run(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = []string{}
	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("self-test: %w", ctx.Err())
		}
		return fmt.Errorf("start %w: %w", errProgramFile, err)
	}
	err := cmd.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("self-test: %w", ctx.Err())
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	status := exit.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled():
		return fmt.Errorf("%w, signal: %v (update the kernel: fixed in 6.12.14, 6.13.3 and 6.14)", ErrReturnProbeKills, status.Signal())
	case status.ExitStatus() == exitNoFilter:
		return fmt.Errorf("%w: the kernel has no seccomp filters", ErrNotApplicable)
	case status.ExitStatus() == exitWrongValue:
		return errors.New("return probes change what a function returns")
	}
	return fmt.Errorf("self-test program: %w", err)
}
