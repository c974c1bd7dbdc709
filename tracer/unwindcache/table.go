// SPDX-License-Identifier: Apache-2.0

package unwindcache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
)

// Table is the unwind table of a file as the kernel has it, but for the numbers of its rules, which
// differ between sessions.
type Table struct {
	Source Source
	First  uint64   // address of the first page of 64 KiB
	Pages  []uint16 // rows of each page
	Rules  []Rule   // no two are equal
	Rows   []Row
}

// Rule unwinds one frame. Its fields are those of the eBPF profiler's UnwindInfo.
type Rule struct {
	Flags, BaseReg, AuxBaseReg, MergeOpcode uint8
	Param, AuxParam                         int32
}

// Row is the rule from an address on.
type Row struct {
	AddressLow uint16
	Rule       uint16 // an index, or a command
}

// Command is set in a row without a rule of the table.
const Command = 1 << 15

// Limits of one table. The largest of Debian's PyTorch has 2 million rows, and is built with
// some thousand reads.
const (
	maxRows   = 1 << 23
	maxPages  = 1 << 17 // of the kernel half, for all files
	maxRules  = Command
	maxReads  = 1 << 16
	maxLength = 256 << 20 // of one read, and of all
	maxFile   = int64(len(magic)) + headBytes + maxReads*readBytes + maxPages*2 + maxRules*ruleBytes + maxRows*rowBytes + crc32.Size
)

// magic changes with the format.
const magic = "vramprof table 1"

const headBytes, readBytes, ruleBytes, rowBytes = 32 + 8 + 4*4, 12, 12, 4

var (
	errDamaged = errors.New("the file is damaged")
	errLimit   = errors.New("the table exceeds a limit")
	checksums  = crc32.MakeTable(crc32.Castagnoli)
	order      = binary.LittleEndian
)

// valid reports whether the parts of a table fit together.
func (t *Table) valid() bool {
	rows, length := 0, uint64(0)
	for _, n := range t.Pages {
		rows += int(n)
	}
	for _, r := range t.Source.Reads {
		length += uint64(r.Length)
		if r.Offset > math.MaxInt64-uint64(r.Length) {
			return false
		}
	}
	if rows != len(t.Rows) || rows == 0 || length > maxLength || t.First > math.MaxUint64-uint64(len(t.Pages))<<16 || t.First%(1<<16) != 0 {
		return false
	}
	for _, row := range t.Rows {
		if row.Rule&Command == 0 && int(row.Rule) >= len(t.Rules) {
			return false
		}
	}
	seen := make(map[Rule]bool, len(t.Rules))
	for _, rule := range t.Rules {
		seen[rule] = true
	}
	return len(seen) == len(t.Rules)
}

func (t *Table) encode() ([]byte, error) {
	if len(t.Rows) > maxRows || len(t.Pages) > maxPages || len(t.Rules) > maxRules || len(t.Source.Reads) > maxReads || !t.valid() {
		return nil, errLimit
	}
	b := bytes.NewBuffer(make([]byte, 0, headBytes+1024+len(t.Pages)*2+len(t.Rules)*ruleBytes+len(t.Rows)*rowBytes))
	b.WriteString(magic)
	counts := [4]uint32{uint32(len(t.Source.Reads)), uint32(len(t.Pages)), uint32(len(t.Rules)), uint32(len(t.Rows))}
	for _, part := range []any{t.Source.Hash, t.First, counts, t.Source.Reads, t.Pages, t.Rules} {
		if err := binary.Write(b, order, part); err != nil {
			return nil, err
		}
	}
	data := b.Bytes()
	for _, row := range t.Rows {
		data = order.AppendUint16(order.AppendUint16(data, row.AddressLow), row.Rule)
	}
	return order.AppendUint32(data, crc32.Checksum(data, checksums)), nil
}

// decode returns an error for all but what encode has written.
func decode(data []byte) (*Table, error) {
	rest, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok || len(rest) < headBytes+crc32.Size {
		return nil, errDamaged
	}
	end := len(rest) - crc32.Size
	if crc32.Checksum(data[:len(data)-crc32.Size], checksums) != order.Uint32(rest[end:]) {
		return nil, errDamaged
	}
	t, head := &Table{}, bytes.NewReader(rest[:end])
	var counts [4]uint32
	read := func(parts ...any) (err error) {
		for _, part := range parts {
			err = errors.Join(err, binary.Read(head, order, part))
		}
		return err
	}
	if err := read(&t.Source.Hash, &t.First, &counts); err != nil {
		return nil, errDamaged
	}
	reads, pages, rules, rows := int64(counts[0]), int64(counts[1]), int64(counts[2]), int64(counts[3])
	if reads > maxReads || pages > maxPages || rules > maxRules || rows > maxRows ||
		reads*readBytes+pages*2+rules*ruleBytes+rows*rowBytes != int64(head.Len()) {
		return nil, errDamaged
	}
	t.Source.Reads, t.Pages, t.Rules = make([]Read, reads), make([]uint16, pages), make([]Rule, rules)
	if err := read(t.Source.Reads, t.Pages, t.Rules); err != nil {
		return nil, errDamaged
	}
	raw := rest[end-head.Len() : end]
	t.Rows = make([]Row, rows)
	for i := range t.Rows {
		t.Rows[i] = Row{order.Uint16(raw[i*rowBytes:]), order.Uint16(raw[i*rowBytes+2:])}
	}
	if !t.valid() {
		return nil, errDamaged
	}
	return t, nil
}
