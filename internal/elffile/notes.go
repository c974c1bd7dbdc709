// SPDX-License-Identifier: Apache-2.0

package elffile

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
)

const (
	maxNotes   = 64 << 10 // bytes of a segment of notes
	maxBuildID = 64       // bytes
	noteHead   = 12
	noteID     = 3 // NT_GNU_BUILD_ID
)

// BuildID returns the GNU build id in hexadecimal, or "" without one. It is the file's own claim.
func (f *File) BuildID() string {
	for _, s := range f.Segments {
		if elf.ProgType(s.Type) != elf.PT_NOTE || s.Filesz > maxNotes {
			continue
		}
		notes, err := f.Read(s.Off, s.Filesz)
		if err != nil {
			continue
		}
		if id := buildID(notes, max(s.Align, 4)); id != "" {
			return id
		}
	}
	return ""
}

// buildID finds the build id among notes, whose parts are aligned to 4 or 8 bytes.
func buildID(notes []byte, align uint64) string {
	if align != 4 && align != 8 {
		return ""
	}
	for uint64(len(notes)) >= noteHead {
		name, size := uint64(binary.LittleEndian.Uint32(notes)), uint64(binary.LittleEndian.Uint32(notes[4:]))
		begin := (noteHead + name + align - 1) &^ (align - 1)
		end := begin + size
		if end > uint64(len(notes)) {
			return ""
		}
		if binary.LittleEndian.Uint32(notes[8:]) == noteID && string(notes[noteHead:noteHead+name]) == "GNU\x00" && size > 0 && size <= maxBuildID {
			return hex.EncodeToString(notes[begin:end])
		}
		notes = notes[min((end+align-1)&^(align-1), uint64(len(notes))):]
	}
	return ""
}
