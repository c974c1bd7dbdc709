// SPDX-License-Identifier: Apache-2.0

package unwindcache

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"
	"slices"
)

// Source is all that a table was built from: the reads of its file in their order, and a hash of
// where and what they read.
type Source struct {
	Reads []Read
	Hash  [sha256.Size]byte
}

// Read is one read of a file.
type Read struct {
	Offset uint64
	Length uint32
}

// Log is a Source under construction. The zero Log is empty.
type Log struct {
	reads  []Read
	state  hash.Hash
	failed bool
}

// Add notes a read. One that failed makes the log useless.
func (l *Log) Add(offset int64, data []byte, err error) {
	if err != nil || offset < 0 || len(l.reads) >= maxReads || len(data) > maxLength {
		l.failed = true
	}
	if l.failed {
		return
	}
	if l.state == nil {
		l.state = sha256.New()
	}
	r := Read{uint64(offset), uint32(len(data))}
	l.reads = append(l.reads, r)
	l.state.Write(r.head())
	l.state.Write(data)
}

// Source returns what was noted, and false if a read failed or there were too many.
func (l *Log) Source() (s Source, ok bool) {
	if l.failed || l.state == nil {
		return Source{}, false
	}
	return Source{slices.Clone(l.reads), [sha256.Size]byte(l.state.Sum(nil))}, true
}

func (r Read) head() []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, r.Offset), r.Length)
}

// Matches reports whether a file has the same bytes where the table's file was read.
func (s Source) Matches(file io.ReaderAt) bool {
	h, buffer := sha256.New(), make([]byte, 1<<20)
	for _, r := range s.Reads {
		h.Write(r.head())
		for at, left := int64(r.Offset), int(r.Length); left > 0; {
			part := buffer[:min(left, len(buffer))]
			if n, _ := file.ReadAt(part, at); n < len(part) {
				return false
			}
			h.Write(part)
			at, left = at+int64(len(part)), left-len(part)
		}
	}
	return [sha256.Size]byte(h.Sum(nil)) == s.Hash
}
