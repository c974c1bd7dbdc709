// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"os"
	"slices"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/probepoint"
)

// ownPID maps the files that libraries.Ahead has found.
var ownPID = uint32(os.Getpid())

// Rows lists the rows of the probe table that a file has and lacks, in the table's order.
type Rows struct {
	Found   []probepoint.Function
	Missing []string
}

// Resolve looks up all rows of a layer in an open file. It attaches nothing.
func Resolve(f *os.File, layer cudaapi.Layer) (Rows, error) {
	library, err := probepoint.Open(f)
	if err != nil {
		return Rows{}, err
	}
	var asked []string
	for _, row := range cudaapi.Table {
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

// Library is a file that would be probed if all processes were traced.
type Library struct {
	Name    string // base name in a process: untrusted, but without control characters
	Layer   cudaapi.Layer
	Program bool     // an executable that contains the runtime
	PIDs    []uint32 // processes that map it; none if it was found in the driver's folders
	Rows    Rows
	Code    [][]byte // of each of Rows.Found, its first bytes: at most firstBytes
	Err     error    // the reason if it cannot be probed
}

// firstBytes is how much of a function Library.Code has: the instructions up to the probe, and the
// jump of a stub.
const firstBytes = 16

// maxListed limits the files that Libraries opens: a process may map thousands with names like
// those of CUDA's libraries.
const maxListed = 256

// Libraries looks up the probe table in each library that CUDA processes map now, and in this
// host's driver library if no process has loaded it. It attaches nothing. more is the number of
// files beyond the limit.
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

// resolveAll opens each file once and returns the driver's libraries first. It omits programs
// without any of the functions.
func resolveAll(found []libraries.Mapped) (list []Library, more int) {
	at, left := map[libraries.FileKey]int{}, map[libraries.FileKey]bool{}
	for _, l := range found {
		i, known := at[l.File]
		switch {
		case known:
		case l.Program && l.IsOwn(), l.Layer == cudaapi.NCCL:
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
		case l.Layer == cudaapi.Runtime:
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
	for _, at := range library.Rows.Found {
		code := make([]byte, firstBytes)
		n, _ := f.ReadAt(code, int64(at.Offset))
		library.Code = append(library.Code, code[:n])
	}
	return library
}
