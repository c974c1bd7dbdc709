// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"cmp"
	"fmt"
	"slices"
)

// readUnit reads the unit header at off. For a type unit, first is 0.
func (d *Data) readUnit(c *cursor, off uint64) (u unit, err error) {
	c.err = nil
	c.seek(off)
	n, wide := c.length()
	u = unit{off: off, wide: wide, version: c.u16()}
	start := uint64(4 + 8)
	if !wide {
		start = 4
	}
	if c.err != nil {
		return u, c.err
	}
	if size := uint64(d.s.Info.Size); n > size-min(size, off+start) {
		return u, fmt.Errorf("unit at %#x: %w", off, errShort)
	}
	u.end = off + start + n
	if u.version < 2 || u.version > 5 {
		return u, c.err // skipped: unknown layout
	}
	kind, addrSize := uint8(unitCompile), uint8(0)
	if u.version == 5 {
		kind, addrSize = c.u8(), c.u8()
	}
	u.abbrevs = c.offset(wide)
	if u.version < 5 {
		addrSize = c.u8()
	}
	if kind == unitSkeleton || kind == unitSplitCompile {
		c.u64() // id of the .dwo file
	}
	if addrSize == 8 && (kind == unitCompile || kind == unitPartial || kind == unitSkeleton) {
		u.first = c.tell()
	}
	u.strBase, u.addrBase, u.rngBase = 0, 0, 0
	if u.version == 5 {
		u.strBase, u.addrBase = 8, 8
		if wide {
			u.strBase, u.addrBase = 16, 16
		}
	}
	return u, c.err
}

// index reads all unit headers and the address ranges of all units. It does not use .debug_aranges,
// which many compilers omit.
func (d *Data) index() error {
	d.indexed = true
	c := newCursor(d.s.Info, 0, 512)
	for off := uint64(0); off < uint64(max(d.s.Info.Size, 0)); {
		if err := d.tick(256); err != nil {
			return err
		}
		u, err := d.readUnit(c, off)
		if err != nil {
			return err
		}
		off = u.end
		if u.first == 0 || u.first >= u.end {
			continue
		}
		if len(d.units) >= d.limits.Units {
			return fmt.Errorf("more than %d units: %w", d.limits.Units, ErrLimit)
		}
		e, err := d.readRoot(c, &u)
		if err != nil {
			continue // skip only the damaged unit
		}
		i := len(d.units)
		d.units = append(d.units, u)
		if e.tag == tagPartialUnit {
			continue
		}
		err = d.ranges(&u, &e, func(low, high uint64) error {
			if len(d.spans) >= maxSpans {
				return fmt.Errorf("address ranges of units: %w", ErrLimit)
			}
			d.spans = append(d.spans, span{low, high, uint64(i)})
			return nil
		})
		if err != nil {
			return err
		}
	}
	slices.SortFunc(d.spans, compareSpans)
	return nil
}

// readRoot reads the first entry of u and copies the attributes that u needs.
func (d *Data) readRoot(c *cursor, u *unit) (entry, error) {
	c.seek(u.first)
	code := c.uleb()
	if c.err != nil {
		return entry{}, c.err
	}
	table, err := d.readAbbrevs(u, code)
	if err != nil {
		return entry{}, err
	}
	a, err := lookupAbbrev(table, code)
	if a == nil {
		return entry{}, fmt.Errorf("unit at %#x: %w", u.off, cmp.Or(err, errAbbrev))
	}
	e := readEntry(c, u, a)
	if c.err != nil {
		return entry{}, c.err
	}
	for _, base := range []struct {
		to   *uint64
		from value
	}{{&u.strBase, e.strBase}, {&u.addrBase, e.addrBase}, {&u.rngBase, e.rngBase}, {&u.lineOff, e.stmtList}} {
		if base.from.form != formNone {
			*base.to = base.from.u
		}
	}
	u.hasLine, u.compDir = e.stmtList.form != formNone, e.compDir
	u.low, _ = d.addr(u, e.low)
	return e, nil
}

// unitAt returns the unit that contains the entry at off.
func (d *Data) unitAt(off uint64) (*unit, bool) {
	i, _ := slices.BinarySearchFunc(d.units, off, func(u unit, off uint64) int {
		if u.off <= off {
			return -1
		}
		return 1
	})
	if i == 0 || off >= d.units[i-1].end || off < d.units[i-1].first {
		return nil, false
	}
	return &d.units[i-1], true
}
