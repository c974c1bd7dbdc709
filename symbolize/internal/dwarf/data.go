// SPDX-License-Identifier: Apache-2.0

// Package dwarf finds the source line and the inlined calls of an address in DWARF 2 to 5, one unit
// at a time.
//
// The standard library's debug/dwarf holds whole sections in memory and parses the abbreviations of
// all units at once, which takes a gigabyte for a large C++ library. This package reads small
// pieces with ReadAt. It does not map files: the traced process owns the file, and truncating a
// mapped file raises SIGBUS, while a read returns an error. All counts and the time spent on one
// file are bounded.
package dwarf

import (
	"errors"
	"fmt"
	"time"
)

// Sections holds the decompressed sections of a file. Missing sections are empty.
type Sections struct {
	Info, Abbrev, Str, LineStr, StrOffsets, Addr, Ranges, RngLists, Line Section
}

// Limits bounds the work on one file. Past a limit, methods return ErrLimit.
type Limits struct {
	Time   time.Duration // total of all lookups
	Units  int
	Rows   int   // rows in the line table of one unit
	Memory int64 // bytes of tables kept between lookups
}

// ErrLimit means that a file exceeds its Limits.
var ErrLimit = errors.New("debug information too large")

// Call is one function that contains an address.
type Call struct {
	Name      string // as in the source, without namespace; "" if unknown
	Linkage   string // mangled; "" for C
	File      string // as the compiler was told, made absolute by its directory; "" if unknown
	Line      int    // of the address, or of the call site of the inlined function; 0 if unknown
	StartLine int    // of the function; 0 if unknown
}

// Data is the debug information of one file. It is not safe for concurrent use.
type Data struct {
	s      Sections
	alt    *Data // file shared by several others (made by dwz), or nil
	limits Limits

	indexed bool
	units   []unit // by offset
	spans   []span // by address; off is the index of the unit
	loaded  map[*unit]*tables
	size    int64 // approximate size of loaded, in bytes

	broken   error // error that affects the whole file
	spent    time.Duration
	deadline time.Time
	steps    int
}

// tables holds what was read from one unit.
type tables struct {
	abbrevs []abbrev
	funcs   []span // off is the offset of the function's entry
	lines   *lineTable
	err     error // error from reading funcs
	scanned bool
}

// New returns the debug information in s. alt is the file with which s shares entries and strings
// (.gnu_debugaltlink), or nil.
func New(s Sections, alt *Data, limits Limits) *Data {
	return &Data{s: s, alt: alt, limits: limits, loaded: map[*unit]*tables{}}
}

// Size returns the approximate memory that d uses, in bytes.
func (d *Data) Size() int64 {
	const unitSize, spanSize = 128, 24
	n := d.size + int64(cap(d.units))*unitSize + int64(cap(d.spans))*spanSize
	if d.alt != nil {
		n += d.alt.Size()
	}
	return n
}

// Spent returns the total time of all lookups.
func (d *Data) Spent() time.Duration { return d.spent }

// tick counts n steps of work. It returns ErrLimit once the file's time is used up.
func (d *Data) tick(n int) error {
	const check = 1 << 12
	before := d.steps
	d.steps += n
	if before/check != d.steps/check && time.Now().After(d.deadline) {
		d.broken = fmt.Errorf("after %v: %w", d.limits.Time, ErrLimit)
	}
	return d.broken
}

func (d *Data) start(now time.Time) {
	d.deadline = now.Add(d.limits.Time - d.spent)
	if d.alt != nil {
		d.alt.start(now)
	}
}

// tables returns the cached tables of u, initially empty.
func (d *Data) tables(u *unit) *tables {
	t := d.loaded[u]
	if t == nil {
		if d.size > d.limits.Memory {
			clear(d.loaded)
			d.size = 0
		}
		t = &tables{}
		d.loaded[u] = t
		d.size += 200
	}
	return t
}

// str looks up a string attribute. It returns "" if the attribute is damaged or not a string.
func (d *Data) str(u *unit, v value) string {
	sec, off := d.s.Str, v.u
	switch v.form {
	case formString:
		sec = d.s.Info
	case formInLine:
		sec = d.s.Line
	case formLineStrp:
		sec = d.s.LineStr
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrIndex:
		c := newCursor(d.s.StrOffsets, u.strBase+v.u*uint64(u.offsetSize()), 8)
		if off = c.offset(u.wide); c.err != nil {
			return ""
		}
	case formGNUStrpAlt, formStrpSup:
		if d.alt == nil {
			return ""
		}
		sec = d.alt.s.Str
	case formStrp:
	default:
		return ""
	}
	s, err := sec.String(off)
	if err != nil {
		return ""
	}
	return s
}

// addr looks up an address attribute. It returns false if the attribute is not an address.
func (d *Data) addr(u *unit, v value) (addr uint64, ok bool) {
	switch v.form {
	case formAddr:
		return v.u, true
	case formAddrx, formAddrx1, formAddrx2, formAddrx3, formAddrx4, formGNUAddrIndex:
		c := newCursor(d.s.Addr, u.addrBase+v.u*8, 8)
		addr = c.u64()
		return addr, c.err == nil
	}
	return 0, false
}
