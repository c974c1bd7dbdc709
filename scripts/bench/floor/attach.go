// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/vramprof/vramprof/tracer/probepoint"
)

// function is one of the functions that the benchmark programs call.
type function struct {
	name      string
	allocates bool
	driver    bool
	entryOnly bool
}

var functions = []function{
	{name: "cudaMalloc", allocates: true}, {name: "cudaFree"},
	{name: "cuMemAlloc_v2", allocates: true, driver: true}, {name: "cuMemFree_v2", driver: true},
	// PyTorch's allocator since 2.2
	{name: "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", entryOnly: true},
}

// prober holds references to the links: the garbage collector closes unreferenced links.
type prober struct {
	programs
	multi   bool // the kernel has uprobe_multi links (6.6)
	runtime bool // a runtime is probed, so driver calls are nested
	links   []link.Link
}

func (p *prober) load(stack bool) (*ebpf.Map, error) {
	var err error
	p.programs, err = loadPrograms(stack, p.multi)
	return p.events, err
}

// attach uses the same types of links as package tracer.
func (p *prober) attach(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	library, err := probepoint.Open(f)
	if err != nil {
		return err
	}
	executable, err := link.OpenExecutable(path)
	if err != nil {
		return err
	}
	found := 0
	for _, fn := range functions {
		for _, at := range library.Functions([]string{fn.name}) {
			found++
			fmt.Fprintf(os.Stderr, "floor: %s in %s at +%#x (%s)\n", at.Name, path, at.Probe-at.Offset, at.Shape)
			if err := p.attachFunction(executable, fn, at.Probe); err != nil {
				return fmt.Errorf("attach %s: %w", fn.name, err)
			}
		}
	}
	if found == 0 {
		return errors.New("the library has none of the functions")
	}
	return nil
}

func (p *prober) attachFunction(x *link.Executable, fn function, at uint64) error {
	if fn.entryOnly {
		l, err := x.Uprobe(fn.name, p.nothing, &link.UprobeOptions{Address: at})
		if err == nil {
			p.links = append(p.links, l)
		}
		return err
	}
	p.runtime = p.runtime || !fn.driver
	nested := fn.driver && p.runtime
	if err := p.attachOne(x, p.nothingMulti, at, true); err != nil {
		return err
	}
	if fn.allocates {
		program := p.outermost
		if nested {
			program = p.nothing
		}
		l, err := x.Uprobe(fn.name, program, &link.UprobeOptions{Address: at})
		if err == nil {
			p.links = append(p.links, l)
		}
		return err
	}
	program := p.free
	if nested {
		program = p.nothingMulti
	}
	return p.attachOne(x, program, at, false)
}

func (p *prober) attachOne(x *link.Executable, program *ebpf.Program, at uint64, isReturn bool) (err error) {
	var l link.Link
	switch options := (&link.UprobeMultiOptions{Addresses: []uint64{at}}); {
	case p.multi && isReturn:
		l, err = x.UretprobeMulti(nil, program, options)
	case p.multi:
		l, err = x.UprobeMulti(nil, program, options)
	case isReturn:
		l, err = x.Uretprobe("probe", program, &link.UprobeOptions{Address: at})
	default:
		l, err = x.Uprobe("probe", program, &link.UprobeOptions{Address: at})
	}
	if err == nil {
		p.links = append(p.links, l)
	}
	return err
}

// close detaches links in parallel: a perf event uprobe takes about 0.1 s.
func (p *prober) close() {
	var wait sync.WaitGroup
	for _, l := range p.links {
		wait.Go(func() { l.Close() })
	}
	wait.Wait()
	p.programs.close()
}
