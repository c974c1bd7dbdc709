// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/vramprof/vramprof/bpf"
)

// mappings is the output of mapped_files for processes that map one file often, in pieces.
type mappings struct {
	processes uint32
	each      int
	files     int // of each process, one after the other
	pid       uint32
	i         int
	piece     bytes.Buffer
}

func (m *mappings) Read(p []byte) (int, error) {
	for m.piece.Len() < len(p) && m.pid < m.processes {
		r := bpf.MappedFile{Pid: m.pid + 1, Device: 8<<20 | 1, Inode: uint64(m.i*m.files/m.each) + 1, Start: uint64(m.i) << 12, End: uint64(m.i+1) << 12}
		copy(r.Name[:], "libcuda.so.1")
		m.piece.Write(unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r)))
		if m.i++; m.i == m.each {
			m.pid, m.i = m.pid+1, 0
		}
	}
	if m.piece.Len() == 0 {
		return 0, io.EOF
	}
	return m.piece.Read(p)
}

// 40 processes with 65,000 mappings took 744 MB.
func TestAScanOfManyMappingsTakesLittleMemory(t *testing.T) {
	memory := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	for _, x := range []struct{ processes, each, files int }{{40, 6500, 1}, {40, 6500, 1000}} {
		before := memory()
		found, err := readScan(&mappings{processes: uint32(x.processes), each: x.each, files: x.files})
		if err != nil {
			t.Fatal(err)
		}
		if after := memory(); after > before+8<<20 {
			t.Errorf("%+v: it takes %d bytes", x, after-before)
		}
		pids := map[uint32]int{}
		for _, l := range found.list {
			pids[l.PID]++
		}
		if len(pids) != x.processes || len(found.list) != x.processes*min(bpf.MaxMapped, bpf.MaxParts*x.files) {
			t.Errorf("%+v: %d mappings of %d processes", x, len(found.list), len(pids))
		}
	}
}

// What a flood of processes leaves is enough for the libraries of each other one.
func TestManyProcessesLeaveRoomForTheMappingsOfEachOther(t *testing.T) {
	found, err := readScan(&mappings{processes: uint32(maxMapped/bpf.MaxMapped + 100), each: 300, files: 100})
	if err != nil {
		t.Fatal(err)
	}
	last := slices.DeleteFunc(slices.Clone(found.list), func(l Mapped) bool { return l.PID != uint32(maxMapped/bpf.MaxMapped+100) })
	if len(last) != fewMapped || len(found.list) > maxMapped+100*fewMapped {
		t.Errorf("the last process has %d mappings, all have %d", len(last), len(found.list))
	}
}

func TestAScanLeavesOutAndNamesTheProcessThatStallsIt(t *testing.T) {
	const first, stalls = 1 << 29, 1<<29 + 3 // of no process
	hang := make(chan bool)
	defer close(hang)
	var told atomic.Uint32
	var pids []uint32
	for pid := uint32(first); pid < first+9; pid++ {
		pids = append(pids, pid)
	}
	look := func(pid uint32) (scan, error) {
		if pid == stalls {
			<-hang
		}
		return scan{list: []Mapped{{PID: pid}}, layouts: map[uint32]uint64{pid: 7}}, nil
	}
	found := scanEach(pids, 200*time.Millisecond, look, func(pid uint32) { told.Store(pid) })
	var got []uint32
	for _, l := range found.list {
		got = append(got, l.PID-first)
	}
	if want := []uint32{0, 1, 2, 4, 5, 6, 7, 8}; told.Load() != stalls || !slices.Equal(got, want) || len(found.layouts) != len(want) {
		t.Errorf("found %d, want %d; left out %d", got, want, told.Load())
	}
}

func BenchmarkReadScan(b *testing.B) {
	for _, n := range []uint32{100, 6000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				if _, err := readScan(&mappings{processes: n, each: 4, files: 4}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
