// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"os"
	"slices"

	"github.com/vramprof/vramprof/tracer/functions"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/place"
)

// ownPID is the process that maps what Ahead has found.
var ownPID = uint32(os.Getpid())

// Rows says which rows of the probe table a file has, in the table's order.
type Rows struct {
	Found   []place.Function
	Missing []string
}

// Resolve looks up all rows of a layer in an open file, and probes nothing.
func Resolve(f *os.File, layer functions.Layer) (Rows, error) {
	library, err := place.Open(f)
	if err != nil {
		return Rows{}, err
	}
	var asked []string
	for _, row := range functions.Table {
		if row.Layer == layer {
			asked = append(asked, row.Name)
		}
	}
	rows := Rows{Found: library.Functions(asked)}
	found := map[string]bool{}
	for _, at := range rows.Found {
		found[at.Name] = true
	}
	for _, name := range asked {
		if !found[name] {
			rows.Missing = append(rows.Missing, name)
		}
	}
	return rows, nil
}

// Library is a file that tracing every process would probe.
type Library struct {
	Name    string // as a process named it: untrusted, but free of control characters
	Layer   functions.Layer
	Program bool     // an executable that holds the runtime itself
	PIDs    []uint32 // who maps it; none: it lies where the driver is looked for
	Rows    Rows
	Err     error // why it cannot be probed
}

// maxListed bounds how many files Libraries looks into: a process may map
// thousands that are named like CUDA's.
const maxListed = 256

// Libraries looks up the probe table in each CUDA library that processes map
// now, and in the driver's library of this host if nobody has loaded it yet.
// Nothing is probed. more is how many files were left out.
func Libraries() (list []Library, more int, err error) {
	s, err := libraries.OpenScanner()
	if err != nil {
		return nil, 0, err
	}
	defer s.Close()
	own := libraries.NewAhead()
	own.Prepare(ownPID, os.Environ())
	defer own.Close()
	found, err := s.Scan()
	if err != nil {
		return nil, 0, err
	}
	list, more = resolveAll(found)
	return list, more, nil
}

// resolveAll looks into each file once, libraries of the driver first.
// Programs that hold none of the functions are left out.
func resolveAll(found []libraries.Mapped) (list []Library, more int) {
	at, left := map[libraries.FileKey]int{}, map[libraries.FileKey]bool{}
	for _, l := range found {
		i, known := at[l.File]
		switch {
		case known:
		case l.Program && l.IsOwn():
			continue
		case len(at) >= maxListed:
			left[l.File] = true
			continue
		default:
			i = len(list)
			at[l.File] = i
			list = append(list, resolve(l))
		}
		if p := &list[i]; !l.IsOwn() && !slices.Contains(p.PIDs, l.PID) {
			p.PIDs = append(p.PIDs, l.PID)
		}
	}
	list = slices.DeleteFunc(list, func(l Library) bool { return l.Program && len(l.Rows.Found) == 0 })
	rank := func(l Library) int {
		switch {
		case l.Program:
			return 2
		case l.Layer == functions.Runtime:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b Library) int { return rank(a) - rank(b) })
	return list, len(left)
}

func resolve(l libraries.Mapped) Library {
	library := Library{Name: l.Name, Layer: l.Layer, Program: l.Program}
	f, err := l.OpenFile()
	if err != nil {
		library.Err = err
		return library
	}
	defer f.Close()
	library.Rows, library.Err = Resolve(f, l.Layer)
	return library
}
