// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/internal/procmaps"
)

func TestParseRegion(t *testing.T) {
	for line, want := range map[string]Region{
		"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/python3": {Start: 0x400000, End: 0x452000, Offset: 0x1000, Path: "/usr/bin/python3", Readable: true, Private: true, device: 0x802, inode: 173521},
		"7f00-7f10 rw-s 00000000 00:05 12 /dev/nvidia 0":                     {Start: 0x7f00, End: 0x7f10, Path: "/dev/nvidia 0", Readable: true, Writable: true, device: 5, inode: 12},
		"7f00-7f10 rw-p 00000000 00:00 0":                                    {Start: 0x7f00, End: 0x7f10, Readable: true, Writable: true, Private: true},
		"7f10-7f00 rw-p 00000000 00:00 0":                                    {},
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]": {},
		"": {}, "x": {}, "1-2 rw 0 0 0": {},
	} {
		m, ok := procmaps.Parse(line)
		got, user := regionOf(m)
		ok = ok && user
		if got != want || ok != (want != Region{}) {
			t.Errorf("%q: %+v, %v", line, got, ok)
		}
	}
	for path, forbidden := range map[string]bool{"/dev/nvidia0": true, "/dev/nvidia-uvm": true, "[vvar]": true, "[vdso]": true, "/dev/shm/x": false, "[heap]": false, "": false} {
		if r := (Region{Readable: true, Path: path}); r.Forbidden() != forbidden {
			t.Errorf("%q: forbidden is %v", path, r.Forbidden())
		}
	}
}

// Kernels of arm64 may have pages of 16 or 64 KiB, and an entry of pagemap for each.
func TestPagemapHasAnEntryForEachPageOfTheKernel(t *testing.T) {
	const present, swapped = 1 << 63, 1 << 62
	for _, shift := range []uint{12, 14, 16} {
		f, err := os.Create(filepath.Join(t.TempDir(), "pagemap"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p := &Process{pagemap: f, shift: shift}
		r := Region{Start: 8 << shift, End: 12 << shift}
		for i, entry := range []uint64{present, present, swapped, present} {
			if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, entry), int64(8*(8+i))); err != nil {
				t.Fatal(err)
			}
		}
		got := p.appendResident(nil, r, make([]byte, 16))
		want := []Span{{8 << shift, 10 << shift}, {11 << shift, 12 << shift}}
		if !slices.Equal(got, want) || p.swapped != 1 || p.skipped != 0 {
			t.Errorf("pages of %d bytes: %x, want %x; %d swapped, %d skipped", 1<<shift, got, want, p.swapped, p.skipped)
		}
		if p.resident(7<<shift) || !p.resident(8<<shift) || p.resident(10<<shift) || !p.resident(11<<shift+1) {
			t.Errorf("pages of %d bytes: the wrong ones are resident", 1<<shift)
		}
	}
}
