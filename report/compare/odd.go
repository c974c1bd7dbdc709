// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vramprof/vramprof/report"
)

// A column is odd in a row if it differs from the median of all columns by more than each of:
// oddBytes, or oddOfAll of the median column where that is less, but oddLeast at least; oddShare of
// the row's median; oddDeviations times the row's median absolute deviation; and oddErrors times
// the standard error of sampled tensors.
const (
	oddBytes      = 64 << 20
	oddLeast      = 8 << 20 // a few pages of the driver
	oddOfAll      = 0.05
	oddShare      = 0.10
	oddDeviations = 3
	oddErrors     = 3
)

// Odd is a column that is unlike the others.
type Odd struct {
	Column     int
	InAll      bool  // its sum is odd; else only some rows are
	Difference int64 // of its sum from the median sum
	Rows       []int // indexes into Comparison.Rows in which it is odd, the largest difference first
	// For each of Rows where it has more than the median: the holder with the most of what it has
	// more, and the bytes of the row that the holder keeps. The path is "" if that is unknown.
	Keepers []Keeper
}

// judge finds the odd columns of each row. Two columns have no median: the second is compared with
// the first.
func (c *Comparison) judge() {
	var sampling uint64
	for i := range c.Columns {
		sampling = max(sampling, c.Columns[i].Error)
	}
	least := max(oddLeast, min(oddBytes, oddOfAll*float64(report.Magnitude(c.Total.Median))))
	c.Total.Odd = c.Total.oddColumns(least)
	odd := make([]Odd, len(c.Columns))
	for k := range odd {
		odd[k] = Odd{Column: k, InAll: slices.Contains(c.Total.Odd, k), Difference: c.Total.Bytes[k] - c.Total.Median}
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		limit := least
		if slices.Contains(r.Planes, report.PlaneTensor) {
			limit = max(limit, oddErrors*float64(sampling))
		}
		for _, k := range r.oddColumns(limit) {
			r.Odd = append(r.Odd, k)
			odd[k].Rows = append(odd[k].Rows, i)
		}
	}
	for k := range odd {
		o := &odd[k]
		slices.SortStableFunc(o.Rows, func(a, b int) int { return cmp.Compare(c.apart(b, k), c.apart(a, k)) })
		for _, i := range o.Rows {
			o.Keepers = append(o.Keepers, c.Rows[i].keeper(k))
		}
		if o.InAll || len(o.Rows) > 0 {
			c.Odd = append(c.Odd, *o)
		}
	}
	slices.SortStableFunc(c.Odd, func(a, b Odd) int { return cmp.Compare(c.weight(&b), c.weight(&a)) })
}

// apart returns how far a column is from the median of a row.
func (c *Comparison) apart(row, column int) uint64 {
	return report.Magnitude(c.Rows[row].Bytes[column] - c.Rows[row].Median)
}

// weight is the largest difference of an odd column.
func (c *Comparison) weight(o *Odd) uint64 {
	most := uint64(0)
	if o.InAll {
		most = report.Magnitude(o.Difference)
	}
	if len(o.Rows) > 0 {
		most = max(most, c.apart(o.Rows[0], o.Column))
	}
	return most
}

// oddColumns returns the columns whose difference from the median exceeds least and what follows
// from the row.
func (r *Row) oddColumns(least float64) (list []int) {
	apart := make([]int64, len(r.Bytes))
	for k, bytes := range r.Bytes {
		apart[k] = int64(report.Magnitude(bytes - r.Median))
	}
	limit := max(least, oddShare*float64(report.Magnitude(r.Median)))
	if len(r.Bytes) > 2 {
		limit = max(limit, oddDeviations*float64(medianOf(apart)))
	}
	for k := range apart {
		if float64(apart[k]) > limit {
			list = append(list, k)
		}
	}
	return list
}

// keep adds the holders of what a column has.
func (r *Row) keep(column int, list []Keeper) {
	if len(list) == 0 {
		return
	}
	if r.keepers == nil {
		r.keepers = make([][]Keeper, len(r.Bytes))
	}
	r.keepers[column] = append(r.keepers[column], list...)
}

// keeper returns the holder that has the most more in a column than in the median column.
func (r *Row) keeper(column int) (most Keeper) {
	if r.keepers == nil || r.Bytes[column] <= r.Median {
		return Keeper{}
	}
	bytes := map[string][]int64{}
	for k, list := range r.keepers {
		for _, h := range list {
			if bytes[h.Path] == nil {
				bytes[h.Path] = make([]int64, len(r.Bytes))
			}
			bytes[h.Path][k] += h.Bytes
		}
	}
	excess := int64(0)
	for _, path := range slices.Sorted(maps.Keys(bytes)) {
		list := bytes[path]
		if more := list[column] - medianOf(list); more > excess {
			excess, most = more, Keeper{path, list[column]}
		}
	}
	return most
}
