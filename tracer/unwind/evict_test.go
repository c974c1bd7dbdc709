// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/process"
)

// mappedFile returns the draft of a process that maps one file, and the id of the file.
func mappedFile(t *testing.T, n uint64) (*draft, libpf.FileID) {
	t.Helper()
	id := libpf.NewFileID(n, 9)
	const at, length = 0x7f0000001000, 0x4000
	prefixes, err := lpm.CalculatePrefixList(at, at+length)
	if err != nil {
		t.Fatal(err)
	}
	return &draft{
		spans:    map[lpm.Prefix]span{prefixes[0]: {file: uint64(host.FileIDFromLibpf(id)), bias: at}},
		mappings: []process.RawMapping{{Vaddr: at, Length: length, Path: fmt.Sprint("/lib/", n)}},
	}, id
}

// The profiler reports a file once in six hours. The names of a file that was unmapped for a while
// are read again even so.
func TestAFileThatIsMappedAgainIsToldAgain(t *testing.T) {
	var c codes
	d, id := mappedFile(t, 7)
	now, key := time.Now(), host.FileIDFromLibpf(id)
	c.noteFile(id, "/lib/7", "abc")
	if again := c.note(d, nil); len(again) != 0 {
		t.Errorf("a new file is told twice: %v", again)
	}
	c.evict(now, map[host.FileID]bool{key: true})
	if again := c.note(d, nil); len(again) != 0 {
		t.Errorf("a file that is mapped is told again: %v", again)
	}
	c.evict(now, nil)
	again := c.note(d, nil)
	if len(again) != 1 || again[0].id != id || again[0].buildID != "abc" || again[0].mapping.Path != "/lib/7" {
		t.Errorf("a file that was unmapped is told as %+v", again)
	}
	if len(c.note(d, nil)) != 0 {
		t.Error("it is told twice")
	}
}

func TestFilesThatNobodyMapsAreForgotten(t *testing.T) {
	u := &Unwinder{layouts: newLayouts(nil), files: map[libpf.FileID]string{}}
	for n := range uint64(2 * maxFiles) {
		id := libpf.NewFileID(n<<32, n)
		u.files[id] = "path"
		u.forgetPaths(u.codes.noteFile(id, "path", ""))
	}
	if n := len(u.codes.files); n > maxFiles || len(u.files) != n {
		t.Errorf("%d files are known, %d paths", n, len(u.files))
	}
	last := libpf.NewFileID((2*maxFiles-1)<<32, 2*maxFiles-1)
	if u.codes.files[host.FileIDFromLibpf(last)] == nil {
		t.Error("the latest file is forgotten")
	}
	u.problems.add(7, "of a process that ended")
	u.problems.add(0, "of none")
	u.layouts.bySum[1] = []*layout{{spans: map[lpm.Prefix]span{{}: {file: uint64(host.FileIDFromLibpf(last))}}}}
	told := false
	u.Evict(time.Now().Add(fileMemory+time.Minute), func(pid uint32) bool { return pid == 7 }, func(mapped func(string) bool) {
		told = mapped(last.StringNoQuotes()) && !mapped(libpf.NewFileID(0, 0).StringNoQuotes())
	})
	if len(u.codes.files) != 1 || len(u.files) != 1 || !told {
		t.Errorf("%d files are known after their time, %d paths; told rightly: %v", len(u.codes.files), len(u.files), told)
	}
	if list := u.Problems(); len(list) != 1 || list[0] != "of none" {
		t.Errorf("problems %q", list)
	}
}

func TestNumbersOfLayoutsBeginAgain(t *testing.T) {
	l := newLayouts(nil)
	l.next = 1<<32 - 2
	for _, taken := range []uint32{1, 2, 4} {
		l.byNumber[taken] = &layout{}
	}
	for _, want := range []uint32{1<<32 - 1, 3, 5} {
		if got := l.number(); got != want {
			t.Errorf("the next number is %d, want %d", got, want)
		}
	}
}

func TestACacheKeepsWhatIsUsed(t *testing.T) {
	var c cache[int, string]
	c.put(1, "a")
	c.put(2, "b")
	for range 3 {
		c.turn()
		if v, ok := c.get(1); !ok || v != "a" {
			t.Fatal("what is used goes")
		}
	}
	if _, ok := c.get(2); ok {
		t.Error("what is not used stays")
	}
	if now := time.Now(); c.age(now) || !c.age(now.Add(turnInterval)) || c.age(now) {
		t.Error("it turns at other times")
	}
}

// Processes come and go, some forked from others, some with files that were never seen before.
func TestTheMemoryOfLayoutsIsFlat(t *testing.T) {
	processes := 3_000
	if os.Getenv("VRAMPROF_SOAK_SERVE") == "full" {
		processes = 1_000_000
	}
	const atOnce = 50
	u := &Unwinder{files: map[libpf.FileID]string{}}
	u.layouts.become(newTree(t, 1<<14))
	now := time.Now()
	var first uint64
	for i := range processes {
		pid := uint32(i + 1)
		file := uint64(i%40 + 1)
		if i%10 == 0 {
			file = uint64(i + 100) // of a container that is gone with its process
		}
		id := libpf.NewFileID(file, file)
		u.files[id] = "/lib/x"
		u.forgetPaths(u.codes.noteFile(id, "/lib/x", "abc"))
		u.layouts.load(pid, pid%5, file, 8)
		if i%atOnce != atOnce-1 {
			continue
		}
		u.layouts.end(func(of uint32) bool { return of <= pid-atOnce })
		now = now.Add(time.Hour)
		u.Evict(now, func(uint32) bool { return true }, func(func(string) bool) {})
		if (i+1)%(processes/10) == 0 && processes > 3_000 {
			t.Logf("%d processes: %d files known, %d entries in the kernel, heap %.1f MB", i+1, len(u.codes.files), u.layouts.entries(t), float64(heap())/1e6)
		}
		switch i + 1 {
		case processes / 10:
			first = heap()
		case processes:
			t.Logf("heap %.1f MB after a tenth, %.1f MB at the end", float64(first)/1e6, float64(heap())/1e6)
			if last := heap(); last > first+first/10 {
				t.Errorf("%d bytes after a tenth, %d at the end", first, last)
			}
		}
	}
	if n, files := u.layouts.entries(t), len(u.codes.files); n > 8*2*atOnce || files > 10_000 || len(u.files) != files {
		t.Errorf("%d entries are left in the kernel, %d files with %d paths", n, files, len(u.files))
	}
}

// become takes the maps of layouts that nothing uses yet.
func (l *layouts) become(of *layouts) {
	n := newLayouts(map[string]*ebpf.Map{"pid_page_to_mapping_info": of.prefixes})
	l.prefixes, l.seed, l.room, l.bySum, l.byHash, l.waiting, l.byNumber, l.of, l.refusals =
		n.prefixes, n.seed, of.room, n.bySum, n.byHash, n.waiting, n.byNumber, n.of, n.refusals
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
