// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vramprof/vramprof/internal/lazyregexp"
)

// A capture is "20261122T031200Z-000017.vram" and its index the same with ".json". The number
// counts all captures of the folder, so it orders them whatever the clock did.
const (
	captureEnding = ".vram"
	indexEnding   = ".json"
	lockName      = ".lock"
	nameTime      = "20060102T150405Z"
)

var nameOf = lazyregexp.New(`^(\d{8}T\d{6}Z)-(\d{6,9})\.(vram|json)$`)

// stored is one capture in the folder, with its index.
type stored struct {
	base   string // of the name
	number uint64
	time   string // as in the name
	size   int64  // of the capture
	index  int64  // size of the index; 0: there is none
	last   time.Time
}

func (s *stored) file() string { return s.base + captureEnding }
func (s *stored) side() string { return s.base + indexEnding }

// list returns the captures of a folder, in the order in which they were begun, and the names of
// indexes without a capture. Other files are left alone.
func list(dir *os.Root) (captures []stored, orphans []string, err error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil, nil, err
	}
	indexes := map[string]int64{}
	for _, e := range entries {
		m := nameOf.FindStringSubmatch(e.Name())
		if m == nil || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, nil, err
		}
		base := strings.TrimSuffix(strings.TrimSuffix(e.Name(), captureEnding), indexEnding)
		if m[3] == "json" {
			indexes[base] = info.Size()
			continue
		}
		number, _ := strconv.ParseUint(m[2], 10, 64)
		captures = append(captures, stored{base: base, number: number, time: m[1], size: info.Size(), last: info.ModTime()})
	}
	slices.SortFunc(captures, func(a, b stored) int { return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.base, b.base)) })
	for i := range captures {
		captures[i].index = indexes[captures[i].base]
		delete(indexes, captures[i].base)
	}
	for base := range indexes {
		orphans = append(orphans, base+indexEnding)
	}
	return captures, orphans, nil
}

// next returns a capture that comes after last in every order. A clock that was set back does not
// show in the name.
func next(last stored, now time.Time) stored {
	text := max(now.UTC().Format(nameTime), last.time)
	number := last.number + 1
	return stored{base: fmt.Sprintf("%s-%06d", text, number), number: number, time: text}
}
