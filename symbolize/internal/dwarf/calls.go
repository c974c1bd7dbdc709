// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"
)

// Lookup appends the calls that contain pc to dst, innermost first; the last one is not inlined. It
// appends nothing if the address is unknown. It may append calls even if it returns ErrLimit.
func (d *Data) Lookup(dst []Call, pc uint64) ([]Call, error) {
	if d.broken != nil {
		return dst, d.broken
	}
	start := time.Now()
	d.start(start)
	defer func() { d.spent += time.Since(start) }()
	if !d.indexed {
		if err := d.index(); err != nil {
			d.broken, d.units, d.spans = fmt.Errorf("index of units: %w", err), nil, nil
			return dst, d.broken
		}
	}
	s, ok := find(d.spans, pc)
	if !ok {
		return dst, nil
	}
	return d.calls(dst, &d.units[s.off], pc)
}

const (
	maxHops    = 8   // from an inlined call over its origin to its declaration
	maxInlined = 256 // nesting of inlined calls
)

// scan reads all entries of u and returns the functions that have code. Functions may be nested
// anywhere, such as in namespaces or other functions.
func (d *Data) scan(u *unit) (funcs []span, err error) {
	table, err := d.abbrevs(u)
	if err != nil {
		return nil, err
	}
	c := newCursor(d.s.Info, u.first, unitWindow)
	for c.err == nil && c.tell() < u.end {
		if err := d.tick(1); err != nil {
			return nil, err
		}
		off := c.tell()
		a, err := lookupAbbrev(table, c.uleb())
		if err != nil {
			return nil, fmt.Errorf("unit at %#x: %w", u.off, err)
		}
		if a == nil {
			continue
		}
		if err := d.tick(len(a.attrs)); err != nil {
			return nil, err
		}
		switch a.tag {
		case tagSubprogram:
			e := readEntry(c, u, a)
			err = d.ranges(u, &e, func(low, high uint64) error {
				if len(funcs) >= maxSpans {
					return fmt.Errorf("functions of a unit: %w", ErrLimit)
				}
				funcs = append(funcs, span{low, high, off})
				return nil
			})
			if errors.Is(err, ErrLimit) {
				return nil, err
			}
		case tagStructureType, tagClassType, tagUnionType, tagEnumerationType:
			// The unit has only declarations.
			if e := readEntry(c, u, a); e.sibling > c.tell() && e.sibling < u.end {
				c.seek(e.sibling)
			}
		default:
			skipEntry(c, u, a)
		}
	}
	slices.SortFunc(funcs, compareSpans)
	return slices.Clip(funcs), c.err
}

// funcs returns the address ranges of the functions of u.
func (d *Data) funcs(u *unit) ([]span, error) {
	t := d.tables(u)
	if !t.scanned {
		t.scanned = true
		t.funcs, t.err = d.scan(u)
		d.size += int64(cap(t.funcs)) * 24
	}
	return t.funcs, t.err
}

// inlined is one inlined call on the path from a function to an address.
type inlined struct {
	off   uint64
	entry entry
}

// chain returns the function entry at off, followed by the inlined calls that contain pc, outermost
// first.
func (d *Data) chain(u *unit, off, pc uint64) ([]inlined, error) {
	table, err := d.abbrevs(u)
	if err != nil {
		return nil, err
	}
	var chain []inlined
	var depths []int // depths of the entries in chain
	c := newCursor(d.s.Info, off, 4096)
	for depth, skip := 0, -1; c.err == nil && c.tell() < u.end && len(chain) < maxInlined; {
		if err := d.tick(1); err != nil {
			return chain, err
		}
		off := c.tell()
		a, err := lookupAbbrev(table, c.uleb())
		if err != nil {
			return chain, err
		}
		if a == nil && len(chain) == 0 {
			return nil, errAbbrev
		}
		if a == nil {
			if depth--; depth <= skip {
				skip = -1
			}
			if depth <= depths[len(depths)-1] {
				return chain, nil // no later entry can contain pc
			}
			continue
		}
		if err := d.tick(len(a.attrs)); err != nil {
			return chain, err
		}
		switch {
		case len(chain) == 0:
			chain, depths = append(chain, inlined{off, readEntry(c, u, a)}), append(depths, 0)
		case skip < 0 && a.tag == tagInlinedSubroutine:
			e := readEntry(c, u, a)
			if d.holds(u, &e, pc) {
				chain, depths = append(chain, inlined{off, e}), append(depths, depth)
			} else if a.children {
				skip = depth
			}
		case skip < 0 && a.tag == tagSubprogram && a.children:
			skip = depth
			skipEntry(c, u, a)
		default:
			skipEntry(c, u, a)
		}
		if a.children {
			depth++
		} else if depth <= depths[len(depths)-1] {
			return chain, nil
		}
	}
	return chain, c.err
}

var errFound = errors.New("found")

func (d *Data) holds(u *unit, e *entry, pc uint64) bool {
	return d.ranges(u, e, func(low, high uint64) error {
		if low <= pc && pc < high {
			return errFound
		}
		return nil
	}) == errFound
}

// calls appends the calls at pc, which is inside u.
func (d *Data) calls(dst []Call, u *unit, pc uint64) ([]Call, error) {
	lines := d.lines(u)
	file, line, known := lines.find(pc)
	funcs, err := d.funcs(u)
	if err == nil {
		err = lines.err
	}
	var chain []inlined
	if f, ok := find(funcs, pc); ok {
		var cerr error
		if chain, cerr = d.chain(u, f.off, pc); err == nil {
			err = cerr
		}
	}
	if len(chain) == 0 && known {
		return append(dst, Call{File: d.path(u, lines, file), Line: line}), err
	}
	for i := len(chain) - 1; i >= 0; i-- {
		e := &chain[i].entry
		call := Call{File: d.path(u, lines, file), Line: line}
		d.describe(u, e, &call)
		dst = append(dst, call)
		file, line = uint32(min(e.callFile, 1<<31)), int(min(e.callLine, 1<<31))
	}
	return dst, err
}

// describe sets the names and first line of e from the entry itself, its abstract origin and the
// origin's declaration.
func (d *Data) describe(u *unit, e *entry, call *Call) {
	for range maxHops {
		if call.Linkage == "" {
			call.Linkage = d.str(u, e.linkage)
		}
		if call.Name == "" {
			call.Name = d.str(u, e.name)
		}
		if call.StartLine == 0 {
			call.StartLine = int(min(e.declLine, 1<<31))
		}
		switch e.origin.form {
		case formGNURefAlt, formRefSup4, formRefSup8:
			if d = d.alt; d == nil {
				return
			}
			if !d.indexed && d.index() != nil {
				return
			}
		case formRefAddr:
		default:
			return
		}
		next, ok := d.entryAt(e.origin.u)
		if !ok {
			return
		}
		u, _ = d.unitAt(e.origin.u)
		e = &next
	}
}

// entryAt reads the entry at off.
func (d *Data) entryAt(off uint64) (entry, bool) {
	u, ok := d.unitAt(off)
	if !ok {
		return entry{}, false
	}
	table, err := d.abbrevs(u)
	if err != nil {
		return entry{}, false
	}
	c := newCursor(d.s.Info, off, 256)
	a, err := lookupAbbrev(table, c.uleb())
	if a == nil || err != nil {
		return entry{}, false
	}
	e := readEntry(c, u, a)
	return e, c.err == nil
}

// path returns the name of a file of u, or "" if the table lacks it.
func (d *Data) path(u *unit, t *lineTable, file uint32) string {
	if uint64(file) >= uint64(len(t.files)) {
		return ""
	}
	f := t.files[file]
	name := d.str(u, f.name)
	if name == "" {
		return ""
	}
	var dir string
	if f.dir < uint64(len(t.dirs)) && !path.IsAbs(name) {
		dir = d.str(u, t.dirs[f.dir])
	}
	if dir != "" || !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	if !path.IsAbs(name) {
		name = path.Join(d.str(u, u.compDir), name)
	}
	return path.Clean(name)
}
