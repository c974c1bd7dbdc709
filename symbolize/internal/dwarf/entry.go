// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"errors"
	"fmt"
)

// Limits of one abbreviation table. Compilers number abbreviations densely from 1.
const (
	maxAbbrevs   = 1 << 16
	maxAttrSpecs = 1 << 20
)

// abbrev is the layout shared by many entries.
type abbrev struct {
	tag      uint16
	children bool
	size     int // bytes of an entry after its code, -1 if it varies
	attrs    []attrSpec
}

// readAbbrevs reads the table of u up to the abbreviation last, or all of it if
// last is 0. It is indexed by code.
func (d *Data) readAbbrevs(u *unit, last uint64) ([]abbrev, error) {
	window := 4096
	if last != 0 {
		window = 256
	}
	c := newCursor(d.s.Abbrev, u.abbrevs, window)
	var table []abbrev
	for specs := 0; c.err == nil; {
		code := c.uleb()
		if code == 0 {
			break
		}
		if code >= maxAbbrevs {
			return nil, fmt.Errorf("abbreviation %d: %w", code, ErrLimit)
		}
		a := abbrev{tag: uint16(c.uleb()), children: c.u8() != 0}
		for c.err == nil {
			s := attrSpec{attr: uint16(c.uleb()), form: uint16(c.uleb())}
			if s.form == formImplicitConst {
				s.implicit = c.sleb()
			}
			if s.attr == 0 && s.form == 0 {
				break
			}
			if n := fixedSize(s.form, u); n < 0 || a.size < 0 {
				a.size = -1
			} else {
				a.size += n
			}
			if specs++; specs > maxAttrSpecs {
				return nil, fmt.Errorf("abbreviations: %w", ErrLimit)
			}
			a.attrs = append(a.attrs, s)
		}
		for uint64(len(table)) <= code {
			table = append(table, abbrev{})
		}
		table[code] = a
		if code == last {
			break
		}
	}
	return table, c.err
}

func (d *Data) abbrevs(u *unit) ([]abbrev, error) {
	t := d.tables(u)
	if t.abbrevs == nil {
		table, err := d.readAbbrevs(u, 0)
		if err != nil {
			return nil, err
		}
		t.abbrevs = table
		for _, a := range table {
			d.size += 48 + int64(cap(a.attrs))*16
		}
	}
	return t.abbrevs, nil
}

// entry is a debugging information entry (DIE) with only the attributes needed for names, ranges
// and lines. The form of a missing attribute is 0.
type entry struct {
	tag               uint16
	children          bool
	sibling           uint64 // offset in .debug_info, 0 if absent
	name, linkage     value
	origin            value // abstract origin or specification
	low, high         value
	ranges            value
	stmtList          value
	compDir           value
	callFile          uint64
	callLine          uint64
	declLine          uint64
	strBase, addrBase value
	rngBase           value
}

var errAbbrev = errors.New("entry without abbreviation")

// lookupAbbrev returns the abbreviation of code, or nil at the end of a list of children.
func lookupAbbrev(table []abbrev, code uint64) (*abbrev, error) {
	if code == 0 {
		return nil, nil
	}
	if code >= uint64(len(table)) || table[code].tag == 0 {
		return nil, fmt.Errorf("%w %d", errAbbrev, code)
	}
	return &table[code], nil
}

// readEntry reads an entry of layout a. The cursor is after the entry's code.
func readEntry(c *cursor, u *unit, a *abbrev) entry {
	e := entry{tag: a.tag, children: a.children}
	for _, s := range a.attrs {
		v := readValue(c, u, s)
		switch s.attr {
		case attrSibling:
			e.sibling = v.u
		case attrName:
			e.name = v
		case attrLinkageName, attrMIPSLinkageName:
			e.linkage = v
		case attrAbstractOrigin, attrSpecification:
			e.origin = v
		case attrLowPC:
			e.low = v
		case attrHighPC:
			e.high = v
		case attrRanges:
			e.ranges = v
		case attrStmtList:
			e.stmtList = v
		case attrCompDir:
			e.compDir = v
		case attrCallFile:
			e.callFile = v.u
		case attrCallLine:
			e.callLine = v.u
		case attrDeclLine:
			e.declLine = v.u
		case attrStrOffsetsBase:
			e.strBase = v
		case attrAddrBase, attrGNUAddrBase:
			e.addrBase = v
		case attrRnglistsBase:
			e.rngBase = v
		}
	}
	return e
}

// skipEntry skips an entry of layout a. The cursor is after the entry's code.
func skipEntry(c *cursor, u *unit, a *abbrev) {
	if a.size >= 0 {
		c.skip(uint64(a.size))
		return
	}
	for _, s := range a.attrs {
		readValue(c, u, s)
	}
}
