// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"cmp"
	"fmt"
	"slices"
)

// unit is the header of a compilation or partial unit, with the attributes of its first entry.
type unit struct {
	off, end uint64 // in .debug_info
	first    uint64 // offset of the first entry
	abbrevs  uint64 // offset in .debug_abbrev
	version  uint16
	wide     bool // 64-bit DWARF

	low                        uint64
	strBase, addrBase, rngBase uint64
	lineOff                    uint64
	hasLine                    bool
	compDir                    value
}

func (u *unit) offsetSize() int {
	if u.wide {
		return 8
	}
	return 4
}

// span is an address range of a unit or of an entry, as off says.
type span struct {
	low, high uint64
	off       uint64 // of the entry in .debug_info, or index of the unit
}

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

// compareSpans sorts by address, and wider spans first.
func compareSpans(a, b span) int {
	return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(b.high, a.high), cmp.Compare(a.off, b.off))
}

// maxSpans bounds the address ranges of all units, and of the functions of one unit.
const maxSpans = 1 << 21

// maxOverlap is how many spans before the nearest one find checks; spans of one list rarely
// overlap.
const maxOverlap = 64

// find returns the last span, by start address, that contains pc.
func find(spans []span, pc uint64) (span, bool) {
	i, _ := slices.BinarySearchFunc(spans, pc, func(s span, pc uint64) int {
		if s.low <= pc {
			return -1
		}
		return 1
	})
	for n := 0; n < maxOverlap && i > 0; n++ {
		if i--; pc < spans[i].high {
			return spans[i], true
		}
	}
	return span{}, false
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
