// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/patches"
)

// InMemory is a file with traced functions as a process has it in memory.
type InMemory struct {
	Name      string         // base name: untrusted, but without control characters
	Functions int            // that can be probed
	Patch     *patches.Patch // what the process changed; nil: nothing
	Err       error          // why the file cannot be probed
}

// Inspect returns the libraries with traced functions that a process maps, by the rule by which
// files are probed. It attaches nothing.
func Inspect(pid uint32) (list []InMemory, err error) {
	found, err := libraries.OfProcess(pid)
	if err != nil {
		return nil, err
	}
	seen := map[libraries.FileKey]bool{}
	for _, l := range found {
		if l.PID != pid || seen[l.File] {
			continue
		}
		seen[l.File] = true
		if x := inspect(l, ofFile(ofProcess(found, pid), l.File)); !l.Program || x.Functions > 0 {
			list = append(list, x)
		}
	}
	return list, nil
}

func inspect(l libraries.Mapped, parts []libraries.Mapped) InMemory {
	x := InMemory{Name: l.Name}
	f, err := l.OpenFile()
	if err != nil {
		x.Err = err
		return x
	}
	defer f.Close()
	functions, err := probedFunctions(f, l.Layer)
	if err != nil {
		x.Err = err
		return x
	}
	code, err := patches.Read(f, functions)
	if err != nil {
		x.Err = err
		return x
	}
	x.Functions = len(functions)
	if list := code.Find(pathOf(f), parts); len(list) > 0 {
		x.Patch = &list[0]
	}
	return x
}

// ofProcess returns the mappings of a process.
func ofProcess(found []libraries.Mapped, pid uint32) (list []libraries.Mapped) {
	for _, l := range found {
		if l.PID == pid {
			list = append(list, l)
		}
	}
	return list
}
