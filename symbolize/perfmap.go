// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Limits of perf maps. Code past a limit is ignored.
const (
	maxPerfMap     = 32 << 20 // bytes of one file
	maxPerfEntries = 1 << 19
	maxPerfTotal   = 128 << 20 // bytes kept for all processes; the oldest maps are dropped
	maxPerfLine    = 64 << 10
)

// jitCode is one line of a perf map.
type jitCode struct {
	start uint64
	size  uint64
	order int // position in the file: where entries overlap, the later one is valid
	name  string
}

// perfMap is the just-in-time compiled code of one process.
type perfMap struct {
	added uint64    // stamp
	size  int64     // approximate bytes kept
	code  []jitCode // by start
}

// AddPerfMap reads the perf map of a process and replaces an earlier one. The file
// /tmp/perf-PID.map lists each function's start and size in hex, and its name:
//
//	7f3a5c2b1000 60 py::train:/home/me/train.py
//
// Malformed lines are skipped. If reading fails, the lines before the error are kept.
func (s *Symbolizer) AddPerfMap(pid uint32, r io.Reader) error {
	p, err := parsePerfMap(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return err
	}
	s.stamp++
	p.added = s.stamp
	s.jit[pid] = p
	for s.jitSize() > maxPerfTotal && len(s.jit) > 1 {
		oldest := pid
		for id, m := range s.jit {
			if m.added < s.jit[oldest].added {
				oldest = id
			}
		}
		delete(s.jit, oldest)
	}
	return err
}

func (s *Symbolizer) jitSize() (n int64) {
	for _, p := range s.jit {
		n += p.size
	}
	return n
}

func parsePerfMap(r io.Reader) (*perfMap, error) {
	p := &perfMap{size: 100}
	lines := bufio.NewScanner(io.LimitReader(r, maxPerfMap))
	lines.Buffer(nil, maxPerfLine)
	for lines.Scan() && len(p.code) < maxPerfEntries {
		if c, ok := parseJIT(lines.Text()); ok {
			c.order = len(p.code)
			p.code = append(p.code, c)
			p.size += 48 + int64(len(c.name))
		}
	}
	slices.SortFunc(p.code, func(a, b jitCode) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.order, b.order))
	})
	if err := lines.Err(); err != nil {
		return p, fmt.Errorf("read perf map: %w", err)
	}
	return p, nil
}

func parseJIT(line string) (c jitCode, ok bool) {
	first, rest, _ := strings.Cut(line, " ")
	second, name, _ := strings.Cut(rest, " ")
	start, err := strconv.ParseUint(strings.TrimPrefix(first, "0x"), 16, 64)
	if err != nil {
		return c, false
	}
	size, err := strconv.ParseUint(strings.TrimPrefix(second, "0x"), 16, 64)
	if err != nil || size == 0 || start+size < start {
		return c, false
	}
	name = untrusted.Clean(strings.TrimSpace(name))
	return jitCode{start: start, size: size, name: name}, name != ""
}

// JITFrame returns the frame of an address in code that was compiled at run time. The frame has no
// mapping.
func (s *Symbolizer) JITFrame(pid uint32, address uint64) (callstack.Frame, bool) {
	s.mu.Lock()
	p := s.jit[pid]
	s.mu.Unlock()
	if p == nil {
		return callstack.Frame{}, false
	}
	c, ok := p.find(address)
	if !ok {
		return callstack.Frame{}, false
	}
	return callstack.Frame{Function: c.name, SystemName: c.name, Address: address}, true
}

// find returns the latest entry that contains address.
func (p *perfMap) find(address uint64) (found jitCode, ok bool) {
	end, _ := slices.BinarySearchFunc(p.code, address, func(c jitCode, address uint64) int {
		if c.start <= address {
			return -1
		}
		return 1
	})
	const maxOverlap = 256 // entries checked between start and address
	for i := end - 1; i >= max(0, end-maxOverlap); i-- {
		if c := p.code[i]; address-c.start < c.size && (!ok || c.order > found.order) {
			found, ok = c, true
		}
	}
	return found, ok
}
