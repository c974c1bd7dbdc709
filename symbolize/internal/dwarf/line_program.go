// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// lines returns the line table of u.
func (d *Data) lines(u *unit) *lineTable {
	t := d.tables(u)
	if t.lines == nil {
		t.lines = &lineTable{}
		if u.hasLine {
			t.lines, t.lines.err = d.readLines(u)
		}
		d.size += t.lines.size()
	}
	return t.lines
}

// lineProgram is the header of a line table, which describes its opcodes.
type lineProgram struct {
	version      uint16
	wide         bool
	end          uint64 // in .debug_line
	minLength    uint64 // length of the shortest instruction in bytes
	lineBase     int64
	lineRange    uint64
	opcodeBase   uint8
	opcodeCounts [256]uint8 // number of operands
}

const maxLineFiles = 1 << 20 // files or directories of one unit

// readLines reads the line table of u. For a damaged table, it returns the part before the damage
// and an error.
func (d *Data) readLines(u *unit) (*lineTable, error) {
	t := &lineTable{}
	c := newCursor(d.s.Line, u.lineOff, unitWindow)
	n, wide := c.length()
	p := lineProgram{wide: wide, end: c.tell() + n, version: c.u16()}
	if c.err != nil || n > uint64(d.s.Line.Size) || p.end > uint64(d.s.Line.Size) {
		return t, fmt.Errorf("line table at %#x: %w", u.lineOff, errShort)
	}
	if p.version < 2 || p.version > 5 {
		return t, fmt.Errorf("line table of version %d", p.version)
	}
	if p.version == 5 {
		c.u16() // address size and selector size
	}
	headerLength := c.offset(wide)
	program := c.tell() + headerLength
	p.minLength = uint64(c.u8())
	if p.version >= 4 {
		c.u8() // operations per instruction, for VLIW
	}
	c.u8() // is_stmt
	p.lineBase, p.lineRange, p.opcodeBase = int64(int8(c.u8())), uint64(c.u8()), c.u8()
	for i := 1; i < int(p.opcodeBase); i++ {
		p.opcodeCounts[i] = c.u8()
	}
	if c.err == nil && p.lineRange == 0 || headerLength > n {
		return t, errors.New("line table with a damaged header")
	}
	read := d.readFiles
	if p.version == 5 {
		read = d.readFiles5
	}
	if err := read(c, u, t, &p); err != nil {
		return t, fmt.Errorf("files of line table: %w", err)
	}
	c.seek(program)
	err := d.runLines(c, t, &p)
	t.rows = slices.Clip(t.rows)
	slices.SortFunc(t.sequences, func(a, b sequence) int {
		return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(a.from, b.from))
	})
	return t, err
}

// readFiles reads the file names of DWARF 2 to 4. There, directory 0 is the compilation directory
// and files count from 1; both lists get an extra first element to match DWARF 5.
func (d *Data) readFiles(c *cursor, u *unit, t *lineTable, p *lineProgram) error {
	t.dirs = append(t.dirs, u.compDir)
	t.files = append(t.files, lineFile{})
	for c.err == nil && c.u8() != 0 {
		if len(t.dirs) >= maxLineFiles {
			return ErrLimit
		}
		t.dirs = append(t.dirs, value{formInLine, c.tell() - 1})
		c.skipString()
	}
	for c.err == nil && c.u8() != 0 {
		if len(t.files) >= maxLineFiles {
			return ErrLimit
		}
		f := lineFile{name: value{formInLine, c.tell() - 1}}
		c.skipString()
		f.dir = c.uleb()
		c.uleb() // time
		c.uleb() // size
		t.files = append(t.files, f)
	}
	return c.err
}

// readFiles5 reads the file names of DWARF 5.
func (d *Data) readFiles5(c *cursor, _ *unit, t *lineTable, p *lineProgram) error {
	const contentPath, contentDirectory = 1, 2
	shape := &unit{version: 5, wide: p.wide} // provides the sizes of forms
	list := func(add func(lineFile)) error {
		specs := make([]attrSpec, c.u8())
		for i := range specs {
			specs[i] = attrSpec{attr: uint16(c.uleb()), form: uint16(c.uleb())}
		}
		n := c.uleb()
		if n > maxLineFiles {
			return ErrLimit
		}
		if n > p.end-min(c.tell(), p.end) { // each takes at least a byte, unless its forms have no size
			return errShort
		}
		for i := uint64(0); i < n && c.err == nil; i++ {
			if err := d.tick(1 + len(specs)); err != nil {
				return err
			}
			var f lineFile
			for _, s := range specs {
				v := readValue(c, shape, s)
				if v.form == formString {
					v.form = formInLine
				}
				switch s.attr {
				case contentPath:
					f.name = v
				case contentDirectory:
					f.dir = v.u
				}
			}
			add(f)
		}
		return c.err
	}
	if err := list(func(f lineFile) { t.dirs = append(t.dirs, f.name) }); err != nil {
		return err
	}
	return list(func(f lineFile) { t.files = append(t.files, f) })
}

// lineMachine is the state of a line program between two opcodes.
type lineMachine struct {
	d      *Data
	t      *lineTable
	p      *lineProgram
	now    row
	from   int // first row of the sequence in t.rows
	sorted bool
}

func (m *lineMachine) restart() {
	m.now, m.from, m.sorted = row{file: 1, line: 1}, len(m.t.rows), true
}

// runLines runs the line program at c and appends its rows to t.
func (d *Data) runLines(c *cursor, t *lineTable, p *lineProgram) error {
	m := &lineMachine{d: d, t: t, p: p}
	m.restart()
	err := error(nil)
	for err == nil && c.err == nil && c.tell() < p.end {
		if err = d.tick(1); err == nil {
			err = m.step(c)
		}
	}
	t.rows = t.rows[:m.from] // the sequence has no end, so the extent of its last row is unknown
	return cmp.Or(err, c.err)
}

func (m *lineMachine) step(c *cursor) error {
	const (
		extended = iota
		opCopy
		opAdvancePC
		opAdvanceLine
		opSetFile
		opConstAddPC   = 8
		opFixedAdvance = 9
	)
	p := m.p
	special := func(op uint8) uint64 { return uint64(op-p.opcodeBase) / p.lineRange * p.minLength }
	switch op := c.u8(); {
	case op >= p.opcodeBase:
		m.now.address += special(op)
		m.now.line += uint32(p.lineBase + int64(uint64(op-p.opcodeBase)%p.lineRange))
		return m.emit()
	case op == extended:
		return m.extended(c)
	case op == opCopy:
		return m.emit()
	case op == opAdvancePC:
		m.now.address += c.uleb() * p.minLength
	case op == opAdvanceLine:
		m.now.line += uint32(c.sleb())
	case op == opSetFile:
		m.now.file = uint32(min(c.uleb(), 1<<31))
	case op == opConstAddPC:
		m.now.address += special(255)
	case op == opFixedAdvance:
		m.now.address += uint64(c.u16())
	default:
		for range p.opcodeCounts[op] {
			c.uleb()
		}
	}
	return nil
}

// extended runs an extended opcode, which stores its own length.
func (m *lineMachine) extended(c *cursor) error {
	const endSequence, setAddress = 1, 2
	n := c.uleb()
	if n > m.p.end {
		return errShort
	}
	next := c.tell() + n
	switch op := c.u8(); {
	case op == endSequence:
		m.t.endSequence(m.from, m.now.address, m.sorted)
		m.restart()
	case op == setAddress && n == 9:
		m.now.address = c.u64()
	}
	c.seek(next)
	return nil
}

func (m *lineMachine) emit() error {
	rows := m.t.rows
	if len(rows) >= m.d.limits.Rows {
		return fmt.Errorf("more than %d lines in a unit: %w", m.d.limits.Rows, ErrLimit)
	}
	if len(rows) > m.from && m.now.address < rows[len(rows)-1].address {
		m.sorted = false
	}
	m.t.rows = append(rows, m.now)
	return nil
}
