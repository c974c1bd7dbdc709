// SPDX-License-Identifier: Apache-2.0

package dwarf

import "fmt"

// ranges calls fn for each address range of e. It skips ranges of code that the linker discarded:
// they begin at 0 or near the top of the address space.
func (d *Data) ranges(u *unit, e *entry, fn func(low, high uint64) error) error {
	emit := func(low, high uint64) error {
		if low == 0 || low >= high || high >= 1<<63 {
			return nil
		}
		return fn(low, high)
	}
	if low, ok := d.addr(u, e.low); ok && e.high.form != formNone {
		high, absolute := d.addr(u, e.high)
		if !absolute {
			high = low + e.high.u
		}
		return emit(low, high)
	}
	if e.ranges.form == formNone {
		return nil
	}
	if u.version < 5 {
		return d.rangeList(u, e.ranges.u, emit)
	}
	off := e.ranges.u
	if e.ranges.form == formRnglistx {
		c := newCursor(d.s.RngLists, u.rngBase+off*uint64(u.offsetSize()), 8)
		if off = u.rngBase + c.offset(u.wide); c.err != nil {
			return fmt.Errorf("range list %d: %w", e.ranges.u, c.err)
		}
	}
	return d.rangeList5(u, off, emit)
}

// rangeList reads .debug_ranges: pairs of offsets relative to a base.
func (d *Data) rangeList(u *unit, off uint64, emit func(low, high uint64) error) error {
	c := newCursor(d.s.Ranges, off, 512)
	base := u.low
	for {
		low, high := c.u64(), c.u64()
		if c.err != nil {
			return fmt.Errorf("range list %#x: %w", off, c.err)
		}
		if err := d.tick(1); err != nil {
			return err
		}
		switch {
		case low == 0 && high == 0:
			return nil
		case low == ^uint64(0):
			base = high
		case low != high:
			if err := emit(base+low, base+high); err != nil {
				return err
			}
		}
	}
}

// rangeList5 reads .debug_rnglists of DWARF 5.
func (d *Data) rangeList5(u *unit, off uint64, emit func(low, high uint64) error) error {
	const (
		endOfList = iota
		baseAddressx
		startxEndx
		startxLength
		offsetPair
		baseAddress
		startEnd
		startLength
	)
	indexed := func(i uint64) uint64 {
		a, _ := d.addr(u, value{formAddrx, i})
		return a
	}
	c := newCursor(d.s.RngLists, off, 256)
	base := u.low
	for {
		kind := c.u8()
		var low, high uint64
		switch kind {
		case endOfList:
			return c.err
		case baseAddressx:
			base = indexed(c.uleb())
		case startxEndx:
			low, high = indexed(c.uleb()), indexed(c.uleb())
		case startxLength:
			low = indexed(c.uleb())
			high = low + c.uleb()
		case offsetPair:
			low, high = base+c.uleb(), base+c.uleb()
		case baseAddress:
			base = c.u64()
		case startEnd:
			low, high = c.u64(), c.u64()
		case startLength:
			low = c.u64()
			high = low + c.uleb()
		default:
			return fmt.Errorf("range list %#x: unknown kind %d", off, kind)
		}
		if c.err != nil {
			return fmt.Errorf("range list %#x: %w", off, c.err)
		}
		if err := d.tick(1); err != nil {
			return err
		}
		if err := emit(low, high); err != nil {
			return err
		}
	}
}
