// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"errors"
	"math"

	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"

	"github.com/vramprof/vramprof/tracer/unwindcache"
)

var (
	errPages = errors.New("the code of the file is larger than the unwinder can find rows for")
	errPlace = errors.New("an unwind row is outside of the file's code")
	errRules = errors.New("the file has more different unwind rules than the kernel's table")
)

// tableOf returns the table that the kernel half needs for the intervals of a file, at least one:
// the profiler would number their rules for as long as it runs. So it gets the intervals
// withoutRules.
func tableOf(data *stackdeltatypes.IntervalData) (*unwindcache.Table, error) {
	begin, end := data.Blocks[0].Start, data.Blocks[len(data.Blocks)-1].End
	count := end>>support.StackDeltaPageBits - begin>>support.StackDeltaPageBits + 1
	if end < begin || count > maxPages {
		return nil, errPages
	}
	b := tableBuilder{numbers: map[stackdeltatypes.UnwindInfo]uint16{}, Table: unwindcache.Table{
		First: begin &^ support.StackDeltaPageMask, Pages: make([]uint16, count), Rows: make([]unwindcache.Row, 0, data.NumDeltas),
	}}
	for i, block := range data.Blocks {
		if err := b.block(block); err != nil {
			return nil, err
		}
		// Nothing is known of a larger gap between functions.
		if i+1 == len(data.Blocks) || block.End+stackdeltatypes.MinimumGap < data.Blocks[i+1].Start {
			if err := b.row(block.End, stackdeltatypes.UnwindInfoInvalid); err != nil {
				return nil, err
			}
		}
	}
	return &b.Table, nil
}

type tableBuilder struct {
	unwindcache.Table
	numbers map[stackdeltatypes.UnwindInfo]uint16
}

// block adds the rows of a function.
func (b *tableBuilder) block(block *stackdeltatypes.BasicBlock) error {
	for i := 0; i < len(block.Deltas); i++ {
		d := block.Deltas[i]
		if i+1 < len(block.Deltas) {
			if d.Info.MergeOpcode = mergeOpcode(d, block.Deltas[i+1]); d.Info.MergeOpcode != 0 {
				i++
			}
		}
		address := block.Start + uint64(d.Offset)
		if d.Info.Flags&support.UnwindFlagCommand != 0 && d.Info.Param == support.UnwindCommandSignal {
			address-- // the kernel half looks for the byte before a return address
		}
		if err := b.row(address, d.Info); err != nil {
			return err
		}
	}
	return nil
}

// row adds a row unless the one before has the same rule.
func (b *tableBuilder) row(address uint64, info stackdeltatypes.UnwindInfo) error {
	number := uint16(info.Param) | support.DeltaCommandFlag
	if info.Flags&support.UnwindFlagCommand == 0 {
		known := false
		if number, known = b.numbers[info]; !known {
			if len(b.Rules) >= maxRules {
				return errRules
			}
			number = uint16(len(b.Rules))
			b.numbers[info] = number
			b.Rules = append(b.Rules, unwindcache.Rule(info))
		}
	}
	if n := len(b.Rows); n > 0 && b.Rows[n-1].Rule == number {
		return nil
	}
	page := (address - b.First) >> support.StackDeltaPageBits
	if address < b.First || page >= uint64(len(b.Pages)) || b.Pages[page] == math.MaxUint16 {
		return errPlace
	}
	b.Pages[page]++
	b.Rows = append(b.Rows, unwindcache.Row{AddressLow: uint16(address), Rule: number})
	return nil
}

// mergeOpcode returns how the row of d includes the next one: one or two bytes later, 8 bytes of
// stack more or fewer. 0 means that it does not.
func mergeOpcode(d, next stackdeltatypes.StackDelta) uint8 {
	distance := next.Offset - d.Offset
	a, b := d.Info, next.Info
	change := b.Param - a.Param
	switch {
	case a.Flags&support.UnwindFlagCommand != 0 || distance != 1 && distance != 2:
		return 0
	case a.BaseReg != b.BaseReg || a.AuxBaseReg != b.AuxBaseReg || a.AuxParam != b.AuxParam:
		return 0
	case change == 8:
		return uint8(distance)
	case change == -8:
		return uint8(distance) | support.MergeOpcodeNegative
	}
	return 0
}

// noRules are the rows of any function withoutRules.
var noRules = stackdeltatypes.StackDeltaArray{{Info: stackdeltatypes.UnwindInfoStop}}

// withoutRules removes all rules from the intervals of a file. Where its functions are stays.
func withoutRules(data *stackdeltatypes.IntervalData) *stackdeltatypes.IntervalData {
	for _, block := range data.Blocks {
		block.Deltas = noRules
	}
	data.NumDeltas = uint32(len(data.Blocks))
	return data
}

// pagesAlone returns intervals with the same pages as a table, and no rules.
func pagesAlone(t *unwindcache.Table) *stackdeltatypes.IntervalData {
	last := t.First + uint64(len(t.Pages)-1)<<support.StackDeltaPageBits
	return withoutRules(&stackdeltatypes.IntervalData{Blocks: []*stackdeltatypes.BasicBlock{{Start: t.First, End: last}}})
}
