// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"debug/elf"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// FuzzReadable demangles C++ and Rust names. The result must be clean and within the length limit
// even if substitutions repeat.
func FuzzReadable(f *testing.F) {
	for _, seed := range []string{
		"cudaMalloc", "_ZN3c104cuda20CUDACachingAllocator6Native22DeviceCachingAllocator6mallocEimP11CUstream_st.cold",
		"_ZNSt6vectorIiSaIiEE17_M_realloc_insertIJRKiEEEvN9__gnu_cxx17__normal_iteratorIPiS1_EEDpOT_",
		"_ZZN2at6native12_GLOBAL__N_1L3addERNS_14TensorIteratorEENKUlvE_clEv", "_RNvCs1234_7mycrate3foo", "_RINvNtC3std3mem8align_ofdE",
		"_ZN4core3ptr13drop_in_place17h0123456789abcdefE", "copy.constprop.0.isra.0", "cudaMalloc@@libcudart.so.12",
		"_Z1f" + strings.Repeat("P", 900) + "i", "_Z1fI" + strings.Repeat("J", 300) + "E", "_Z1f1AIiiE1AIS_S_E1AIS0_S0_E1AIS1_S1_E",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, symbol string) {
		name := readable(symbol)
		if len(name) > untrusted.MaxName || name != untrusted.Clean(name) {
			t.Errorf("%.100q became %d bytes, %.100q", symbol, len(name), name)
		}
		if plain := unversioned(symbol); len(plain) > len(symbol) || strings.IndexByte(plain, '@') > 0 {
			t.Errorf("%.100q unversioned is %.100q", symbol, plain)
		}
	})
}

// FuzzDebugFile gives a library hostile debug file names and build ids. No file outside the roots
// may be opened.
func FuzzDebugFile(f *testing.F) {
	f.Add("/opt/app/libfoo.so", []byte("libfoo.debug\x00\x00\x00\x00\x12\x34\x56\x78"), []byte("\x04\x00\x00\x00\x14\x00\x00\x00\x03\x00\x00\x00GNU\x0001234567890123456789"))
	f.Add("../../etc/x", []byte("../../../secret\x00\x12\x34\x56\x78"), []byte(nil))
	f.Add("/a/b (deleted)", []byte("secret\x00\x00\x12\x34\x56\x78"), []byte(nil))
	dir := f.TempDir()
	root := filepath.Join(dir, "root")
	for _, path := range []string{filepath.Join(dir, "secret"), filepath.Join(root, "usr/lib/debug/own.debug")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			f.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	if err := os.Symlink("../../../../secret", filepath.Join(root, "usr/lib/debug/out")); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path string, link, note []byte) {
		file := filepath.Join(t.TempDir(), "lib.so")
		if err := os.WriteFile(file, withSections(map[string][]byte{".gnu_debuglink": link, ".note.gnu.build-id": note}), 0o600); err != nil {
			t.Fatal(err)
		}
		opened, err := untrusted.OpenRegular(file)
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		b, err := parseELF(opened, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if id := b.buildID(); len(id) > 128 || strings.Trim(id, "0123456789abcdef") != "" {
			t.Errorf("build id %q", id)
		}
		list := Options{DebugRoots: []string{"/usr/lib/debug"}}.candidates(b, path, root)
		if len(list) > 8 {
			t.Errorf("%d candidate paths", len(list))
		}
		for _, c := range list {
			if !filepath.IsAbs(c.path) || strings.Contains(c.path, "/../") {
				t.Errorf("place %q", c.path)
			}
			if c.root != root {
				continue
			}
			if found, err := untrusted.OpenIn(c.root, c.path); err == nil {
				real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(found.Fd())))
				if err != nil || !strings.HasPrefix(real, root+"/") {
					t.Errorf("%q led to %q", c.path, real)
				}
				found.Close()
			}
		}
	})
}

// withSections builds an ELF file with only these sections.
func withSections(content map[string][]byte) []byte {
	const headerSize, entrySize = 64, 64
	names := []byte{0}
	data := make([]byte, headerSize)
	type section struct{ name, offset, size int }
	list := []section{{}}
	for _, name := range slices.Sorted(maps.Keys(content)) {
		list = append(list, section{len(names), len(data), len(content[name])})
		names = append(append(names, name...), 0)
		data = append(data, content[name]...)
	}
	list = append(list, section{len(names), len(data), 0})
	names = append(append(names, ".shstrtab"...), 0)
	list[len(list)-1].size = len(names)
	data = append(data, names...)
	at := len(data)
	for i, s := range list {
		h := make([]byte, entrySize)
		kind := elf.SHT_PROGBITS
		if i == 0 {
			kind = elf.SHT_NULL
		} else if i == len(list)-1 {
			kind = elf.SHT_STRTAB
		}
		binary.LittleEndian.PutUint32(h, uint32(s.name))
		binary.LittleEndian.PutUint32(h[4:], uint32(kind))
		binary.LittleEndian.PutUint64(h[24:], uint64(s.offset))
		binary.LittleEndian.PutUint64(h[32:], uint64(s.size))
		data = append(data, h...)
	}
	copy(data, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint16(data[16:], uint16(elf.ET_DYN))
	binary.LittleEndian.PutUint16(data[18:], uint16(elf.EM_X86_64))
	binary.LittleEndian.PutUint32(data[20:], 1)
	binary.LittleEndian.PutUint64(data[40:], uint64(at))
	binary.LittleEndian.PutUint16(data[52:], headerSize)
	binary.LittleEndian.PutUint16(data[58:], entrySize)
	binary.LittleEndian.PutUint16(data[60:], uint16(len(list)))
	binary.LittleEndian.PutUint16(data[62:], uint16(len(list)-1))
	return data
}
