// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"maps"
	"os"
	"time"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/tracer/procfs"
)

const (
	perfMapInterval = time.Second // between two readings of one perf map, at least
	perfMapRest     = 20          // times as long as a reading took, no map of the same user is read
)

// perfMaps paces the readings of perf maps: the stacks of all processes wait for each.
type perfMaps struct {
	open func(pid uint32) (*os.File, error)
	read map[uint32]time.Time // by pid
	rest map[uint32]time.Time // by user: the end of the rest
}

func newPerfMaps() perfMaps {
	return perfMaps{procfs.OpenPerfMap, map[uint32]time.Time{}, map[uint32]time.Time{}}
}

// due reports whether the map of a process may be read, and notes that it is.
func (p *perfMaps) due(pid, user uint32, now time.Time) bool {
	if now.Sub(p.read[pid]) < perfMapInterval || now.Before(p.rest[user]) {
		return false
	}
	maps.DeleteFunc(p.read, func(_ uint32, read time.Time) bool { return now.Sub(read) >= perfMapInterval })
	maps.DeleteFunc(p.rest, func(_ uint32, end time.Time) bool { return !now.Before(end) })
	p.read[pid] = now
	return true
}

// refresh reads the map of a process again, if that is due. now is time.Now, or a test's.
func (p *perfMaps) refresh(pid, user uint32, now func() time.Time, to *symbolize.Symbolizer) {
	begin := now()
	if !p.due(pid, user, begin) {
		return
	}
	defer func() {
		end := now()
		p.rest[user] = end.Add(perfMapRest * end.Sub(begin))
	}()
	file, err := p.open(pid)
	if err != nil {
		return
	}
	defer file.Close()
	_ = to.AddPerfMap(pid, file) // it keeps the lines before an error
}
