// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"maps"
	"path"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// A function is compared across versions and machines, whose folders differ: its file is the last
// part of the path, except where one column has two such files.
type functionKey struct {
	name, file string
	mark       bool
}

// comparedLine is one line of one column.
type comparedLine struct {
	frame  callstack.Frame
	planes []string
	bytes  int64
	kept   []Keeper
	called []Held // what Row.Calls is made of
}

// comparedFunction is all lines of one function, by column.
type comparedFunction struct {
	key   functionKey
	lines []map[int]*comparedLine
}

// alignRows sums what the columns hold by line of code and puts lines beside each other.
func alignRows(columns []Column) []Row {
	whole := ambiguousFiles(columns)
	at := map[functionKey]int{}
	var list []*comparedFunction
	for k := range columns {
		for _, h := range columns[k].Held {
			key := functionOf(&h.Frame)
			if whole[key] {
				key.file = h.Frame.File
			}
			i, ok := at[key]
			if !ok {
				i = len(list)
				at[key] = i
				list = append(list, &comparedFunction{key, make([]map[int]*comparedLine, len(columns))})
			}
			list[i].add(k, &h)
		}
	}
	var rows []Row
	for _, f := range list {
		rows = append(rows, f.rows(columns)...)
	}
	return slices.DeleteFunc(rows, func(r Row) bool {
		return !slices.ContainsFunc(r.Bytes, func(bytes int64) bool { return bytes != 0 })
	})
}

// functionOf returns the function of a frame. PyTorch's cache is one row, whenever it was taken
// from CUDA: how much is older than the attach depends on the moment of the attach.
func functionOf(f *callstack.Frame) functionKey {
	if f.Mark && f.Function == report.MarkOlderCached {
		return functionKey{report.MarkCache, "", true}
	}
	file := f.File
	if file == "" && f.Mapping != nil {
		file = f.Mapping.Path
	}
	if file != "" {
		file = path.Base(file)
	}
	return functionKey{frames.ShortName(f), file, f.Mark} // that of a profile too
}

// ambiguousFiles returns the functions that one column has in two files of one name:
// a/model.py and b/model.py.
func ambiguousFiles(columns []Column) map[functionKey]bool {
	list := map[functionKey]bool{}
	for k := range columns {
		file := map[functionKey]string{}
		for _, h := range columns[k].Held {
			key := functionOf(&h.Frame)
			if other, ok := file[key]; ok && other != h.Frame.File {
				list[key] = true
			}
			file[key] = h.Frame.File
		}
	}
	return list
}

func (f *comparedFunction) add(column int, h *Held) {
	if f.lines[column] == nil {
		f.lines[column] = map[int]*comparedLine{}
	}
	x := f.lines[column][h.Frame.Line]
	if x == nil {
		x = &comparedLine{frame: h.Frame}
		f.lines[column][h.Frame.Line] = x
	}
	x.bytes += h.Bytes
	x.kept = append(x.kept, h.Keepers...)
	x.called = append(x.called, *h)
	if !slices.Contains(x.planes, h.Plane) {
		x.planes = append(x.planes, h.Plane)
	}
}

// rows returns one row for each line of the function. Where its lines have moved from one file to
// another, the first line of one is put beside the first of the other, and so on; and where a line
// was added as well, the whole function is one row.
func (f *comparedFunction) rows(columns []Column) []Row {
	sets := f.lineSets()
	if !f.moved(columns, sets) {
		var all []int
		for _, set := range sets {
			all = append(all, set...)
		}
		slices.Sort(all)
		var rows []Row
		for _, line := range slices.Compact(all) {
			rows = append(rows, f.row(func(k, other int) bool { return other == line }))
		}
		return rows
	}
	most, least := 0, 1<<30
	for _, set := range sets {
		if len(set) > 0 {
			most, least = max(most, len(set)), min(least, len(set))
		}
	}
	if most != least {
		r := f.row(func(int, int) bool { return true })
		r.Frame.Line = 0
		return []Row{r}
	}
	var rows []Row
	for i := range most {
		r := f.row(func(k, line int) bool { return sets[k][i] == line })
		r.Lines = make([]int, len(columns))
		for k, set := range sets {
			if len(set) > 0 {
				r.Lines[k] = set[i]
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// lineSets returns the sorted lines of each column.
func (f *comparedFunction) lineSets() [][]int {
	sets := make([][]int, len(f.lines))
	for k, lines := range f.lines {
		for line := range lines {
			sets[k] = append(sets[k], line)
		}
		slices.Sort(sets[k])
	}
	return sets
}

// moved reports whether two files have the function without a common line, and each file has the
// same lines in all of its columns.
func (f *comparedFunction) moved(columns []Column, sets [][]int) bool {
	some := false
	for a := range sets {
		for b := a + 1; b < len(sets); b++ {
			if len(sets[a]) == 0 || len(sets[b]) == 0 || slices.Equal(sets[a], sets[b]) {
				continue
			}
			if columns[a].File == columns[b].File || slices.ContainsFunc(sets[a], func(line int) bool { return slices.Contains(sets[b], line) }) {
				return false
			}
			some = true
		}
	}
	return some && f.key.file != ""
}

// row sums the lines for which in reports true. The frame is that of the column with the most.
func (f *comparedFunction) row(in func(column, line int) bool) Row {
	r := Row{Bytes: make([]int64, len(f.lines))}
	most := int64(0)
	var calls apart.Calls
	for k, lines := range f.lines {
		for _, line := range slices.Sorted(maps.Keys(lines)) {
			x := lines[line]
			if !in(k, line) {
				continue
			}
			r.Bytes[k] += x.bytes
			r.keep(k, x.kept)
			for i := range x.called {
				if below := x.called[i].Below; below != nil { // else nothing is known, as in a profile
					calls.AddNames(below, uint64(max(x.called[i].Bytes, 0)))
				}
			}
			if r.Planes == nil || x.bytes > most {
				most, r.Frame = x.bytes, x.frame
			}
			for _, plane := range x.planes {
				if !slices.Contains(r.Planes, plane) {
					r.Planes = append(r.Planes, plane)
				}
			}
		}
	}
	if f.key.mark {
		r.Frame.Function = f.key.name
	}
	slices.Sort(r.Planes)
	r.Calls = calls.Names()
	return r
}
