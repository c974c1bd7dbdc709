// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/symbolize/internal/dwarf"
)

// object is one added file with its debug files.
type object struct {
	main, debug, alt *binaryFile // debug and alt may be nil
	key              string      // as in AddFile
	id               string      // cache key of the file's names
	name             string      // for warnings

	// Guarded by Symbolizer.mu.
	used uint64 // time stamp of the last use
	size int64  // bytes of tables, when last counted

	mu       sync.Mutex // guards the fields below
	loaded   bool
	closed   bool
	symbols  *symtab     // nil if there are none
	lines    *dwarf.Data // nil if there are none
	cache    map[uint64][]callstack.Frame
	cached   int64         // approximate size of cache in bytes
	inflated int64         // bytes of decompressed sections
	spent    time.Duration // on DWARF, before the last unload
	naming   time.Duration // time spent on demangling
	loading  time.Duration // time spent on opening tables
	problem  error         // why names are incomplete
}

// open parses f and opens its debug files.
func (o Options) open(m *callstack.Mapping, f *os.File, root string) (*object, error) {
	main, err := parseELF(f, o.MaxFileSize)
	if err != nil {
		return nil, err
	}
	ob := &object{main: main, name: fileName(m)}
	if !main.has(".debug_info", ".zdebug_info") {
		ob.debug = o.openDebug(main, m.Path, root)
	}
	for _, b := range []*binaryFile{main, ob.debug} {
		if b != nil && ob.alt == nil {
			ob.alt = o.openAlt(b, root)
		}
	}
	return ob, nil
}

// close closes the files. It waits for a running lookup.
func (ob *object) close() {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	if ob.closed {
		return
	}
	ob.unload()
	ob.closed = true
	for _, b := range []*binaryFile{ob.main, ob.debug, ob.alt} {
		if b != nil {
			b.file.Close()
		}
	}
}

// unload frees the tables; the next lookup reads them again.
func (ob *object) unload() {
	if ob.lines != nil {
		ob.spent = ob.lines.Spent()
	}
	ob.loaded, ob.symbols, ob.lines, ob.cache, ob.cached, ob.inflated = false, nil, nil, nil, 0, 0
}

// load opens the tables. Most of their content is read when first needed. It does nothing if all
// earlier loads together took too long: files that unload each other would take time without end.
func (ob *object) load(o Options) {
	ob.loaded = true
	if ob.loading >= o.MaxTime {
		ob.note(fmt.Errorf("opened too often: %w", dwarf.ErrLimit))
		return
	}
	begin := time.Now()
	defer func() { ob.loading += time.Since(begin) }()
	text := ob.main.text()
	for _, from := range []struct {
		b    *binaryFile
		kind elf.SectionType
	}{{ob.debug, elf.SHT_SYMTAB}, {ob.main, elf.SHT_SYMTAB}, {ob.main, elf.SHT_DYNSYM}} {
		if from.b == nil || ob.symbols != nil {
			continue
		}
		t, err := from.b.symbols(from.kind, text, o.MaxSymbols)
		if err != nil {
			ob.note(err)
		}
		if t != nil && len(t.symbols) > 0 {
			ob.symbols = t
		}
	}
	if ob.spent >= o.MaxTime {
		return
	}
	for _, b := range []*binaryFile{ob.main, ob.debug} {
		if b != nil && b.has(".debug_info", ".zdebug_info") {
			ob.lines = ob.dwarf(b, o)
			return
		}
	}
}

// dwarf opens the debug information of b. It returns nil if it cannot be read.
func (ob *object) dwarf(b *binaryFile, o Options) *dwarf.Data {
	limits := dwarf.Limits{Time: o.MaxTime - ob.spent, Units: 1 << 18, Rows: 1 << 21, Memory: o.MaxMemory / 4}
	left := o.MaxInflated
	var alt *dwarf.Data
	if ob.alt != nil {
		if s, err := sections(ob.alt, &left); err == nil {
			alt = dwarf.New(s, nil, limits)
		}
	}
	s, err := sections(b, &left)
	ob.inflated = o.MaxInflated - left
	if err != nil {
		ob.inflated = 0
		ob.note(err)
		return nil
	}
	return dwarf.New(s, alt, limits)
}

func sections(b *binaryFile, inflate *int64) (s dwarf.Sections, err error) {
	defer fence(&err)
	for _, want := range []struct {
		name string
		to   *dwarf.Section
	}{
		{".debug_info", &s.Info}, {".debug_abbrev", &s.Abbrev}, {".debug_str", &s.Str},
		{".debug_line", &s.Line}, {".debug_line_str", &s.LineStr}, {".debug_str_offsets", &s.StrOffsets},
		{".debug_addr", &s.Addr}, {".debug_ranges", &s.Ranges}, {".debug_rnglists", &s.RngLists},
	} {
		if *want.to, err = b.section(want.name, inflate); err != nil {
			return dwarf.Sections{}, err
		}
	}
	return s, nil
}

// note keeps the first error, except that ErrLimit replaces others.
func (ob *object) note(err error) {
	if ob.problem == nil || errors.Is(err, dwarf.ErrLimit) && !errors.Is(ob.problem, dwarf.ErrLimit) {
		ob.problem = err
	}
}

// maxCached is how many addresses of one file have cached names.
const maxCached = 1 << 14

// frames returns the frames of address without their mapping, or none if the address is unknown.
// The result is shared; do not modify it.
func (ob *object) frames(address uint64, o Options) (frames []callstack.Frame) {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	if ob.closed {
		return nil
	}
	if frames, ok := ob.cache[address]; ok {
		return frames
	}
	if !ob.loaded {
		ob.load(o)
	}
	frames = ob.resolve(address, o)
	if ob.cache == nil || len(ob.cache) >= maxCached {
		ob.cache, ob.cached = make(map[uint64][]callstack.Frame), 0
	}
	ob.cache[address] = frames
	for _, f := range frames {
		const frameSize = 128
		ob.cached += frameSize + int64(len(f.Function)+len(f.SystemName)+len(f.File))
	}
	return frames
}

func (ob *object) resolve(address uint64, o Options) (frames []callstack.Frame) {
	var symbol string
	var known bool
	if ob.symbols != nil {
		symbol, known = ob.symbols.lookup(address)
	}
	calls, err := ob.calls(address)
	if err != nil {
		ob.note(err)
	}
	for i, c := range calls {
		f := callstack.Frame{File: untrusted.Clean(c.File), Line: c.Line, StartLine: c.StartLine, Address: address, Inlined: i < len(calls)-1}
		ob.nameFrame(&f, c.Linkage, c.Name, o)
		if f.Inlined && f.Function == "" {
			f.Function = "[inlined]"
		}
		frames = append(frames, f)
	}
	if len(frames) == 0 && !known {
		return nil
	}
	if len(frames) == 0 {
		frames = append(frames, callstack.Frame{Address: address})
	}
	if known {
		// The linker's name is exact even if several names share one address.
		ob.nameFrame(&frames[len(frames)-1], symbol, "", o)
	}
	return frames
}

// nameFrame sets the names of f from the mangled name, or from plain if there is none. Names stay
// mangled once the time for demangling is used up.
func (ob *object) nameFrame(f *callstack.Frame, mangled, plain string, o Options) {
	switch {
	case mangled != "":
		f.SystemName = untrusted.Clean(mangled)
		if f.Function = f.SystemName; ob.naming < o.MaxTime {
			begin := time.Now()
			f.Function = readable(mangled)
			ob.naming += time.Since(begin)
		} else {
			ob.note(fmt.Errorf("demangling: %w", dwarf.ErrLimit))
		}
	case plain != "":
		f.Function = untrusted.Clean(plain)
		f.SystemName = f.Function
	}
}

// exhausted reports whether the file has used up its time.
func (ob *object) exhausted(o Options) bool {
	return ob.naming >= o.MaxTime || ob.loading >= o.MaxTime || ob.spent >= o.MaxTime || ob.lines != nil && ob.lines.Spent() >= o.MaxTime
}

func (ob *object) calls(address uint64) (calls []dwarf.Call, err error) {
	if ob.lines == nil {
		return nil, nil
	}
	defer fence(&err)
	return ob.lines.Lookup(nil, address)
}

// memory returns the approximate size of the tables of ob, in bytes.
func (ob *object) memory() int64 {
	n := ob.cached + ob.inflated
	if ob.symbols != nil {
		n += int64(cap(ob.symbols.symbols)) * 12
	}
	if ob.lines != nil {
		n += ob.lines.Size()
	}
	return n
}

func (ob *object) warning() string {
	if ob.problem == nil {
		return ""
	}
	return fmt.Sprintf("names of %s are incomplete: %s", ob.name, untrusted.Clean(ob.problem.Error()))
}
