// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/vramprof/vramprof/tracer/capture"
)

// Archive is a folder of captures as it was when it was opened. It is safe for concurrent use.
type Archive struct {
	dir      string
	captures []*Capture
	problems []string
}

// Capture is one capture of an archive. Its fields must not be changed.
type Capture struct {
	Name     string // of the file
	Path     string
	Size     int64 // bytes
	Host     string
	Boot     string    // id of the boot that Begin and End count from; "" if unknown
	Session  string    // the same for all captures of one session
	Part     uint32    // number in the session, from 0
	Begin    uint64    // ns of CLOCK_MONOTONIC: from then on it has everything
	End      uint64    // of its last input
	From, To time.Time // the same moments in time of day
	Complete bool      // it has an end: it is not being written, and nothing cut it off

	once  sync.Once
	index *Index
	err   error
}

// Open lists the captures of a folder, which may be written and deleted meanwhile. What cannot be
// read is in Problems.
func Open(dir string) (*Archive, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, cause(err))
	}
	defer root.Close()
	files, _, err := list(root)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, cause(err))
	}
	a := &Archive{dir: dir}
	for i := range files {
		c, err := describe(root, dir, &files[i])
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was deleted meanwhile
		case err != nil:
			a.problems = append(a.problems, fmt.Sprintf("%s: %v", files[i].file(), cause(err)))
		case c != nil:
			a.captures = append(a.captures, c)
		}
	}
	return a, nil
}

// describe returns a capture without its index, or nil for one that has nothing yet.
func describe(root *os.Root, dir string, f *stored) (*Capture, error) {
	c := &Capture{Name: f.file(), Path: filepath.Join(dir, f.file()), Size: f.size}
	if f.index != 0 {
		if x := readIndex(root, f.side(), f.size); x != nil {
			if x.Begin == 0 {
				return nil, errors.New("it cannot be read")
			}
			c.index = x
			c.Host, c.Boot, c.Session, c.Part = x.Host, x.Boot, x.Session, x.Part
			c.Begin, c.End, c.From, c.To, c.Complete = x.Begin, x.End, x.From, x.To, x.Complete
			return c, nil
		}
	}
	file, err := root.Open(f.file())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	r, err := capture.NewReader(file, info.Size())
	if err != nil && info.Size() < leastFile {
		return nil, nil // it was cut off as it began
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	c.Size, c.Host, c.Boot = info.Size(), r.Host(), r.Boot()
	c.Session, c.Part = r.Session()
	if c.Begin = r.Opened(); c.Begin == 0 {
		return nil, nil // it was cut off in its opening: the capture before has all that is in it
	}
	c.End, c.Complete = max(r.End(), c.Begin), r.Ended()
	c.From, c.To = r.Wall(c.Begin), r.Wall(c.End)
	return c, nil
}

// Dir returns the folder.
func (a *Archive) Dir() string { return a.dir }

// Captures returns the captures in the order in which they were begun. The caller must not change
// the list.
func (a *Archive) Captures() []*Capture { return a.captures }

// Problems has a sentence for each capture that cannot be read.
func (a *Archive) Problems() []string { return a.problems }

// Index returns what the capture contains. Without the file beside it, the whole capture is read.
func (c *Capture) Index() (*Index, error) {
	c.once.Do(func() {
		if c.index == nil {
			c.index, c.err = composeIndex(c.Path)
		}
	})
	return c.index, c.err
}

// Moment is a moment of a capture.
type Moment struct {
	Capture *Capture
	Time    uint64    // ns of the capture's clock
	Wall    time.Time // the same in time of day
}

// NotThere means that an archive has nothing at a moment.
type NotThere struct {
	Wanted time.Time
	Before time.Time // nearest moment before, zero if there is none
	After  time.Time // nearest moment after, zero if there is none
}

func (e *NotThere) Error() string {
	const layout = "2006-01-02 15:04:05 MST"
	near := func(t time.Time) string { return t.In(e.Wanted.Location()).Format(layout) }
	text := "the archive has nothing at " + near(e.Wanted)
	switch {
	case e.Before.IsZero() && e.After.IsZero():
		return "the archive is empty"
	case e.Before.IsZero():
		return text + ": it begins at " + near(e.After.Add(time.Second-1).Truncate(time.Second))
	case e.After.IsZero():
		return text + ": it ends at " + near(e.Before)
	}
	return text + ": nearest are " + near(e.Before) + " and " + near(e.After.Add(time.Second-1).Truncate(time.Second))
}

// nearby is how far outside of all captures a moment may be: one ends as the next one begins, and
// people name seconds.
const nearby = time.Second

// At returns where the archive shows a time of day. Where captures overlap, because the clock was
// set back, it is the latest. If there is none, the error is a NotThere.
func (a *Archive) At(wall time.Time) (Moment, error) {
	missing := &NotThere{Wanted: wall}
	for _, c := range slices.Backward(a.captures) {
		if !wall.Before(c.From) && !wall.After(c.To) {
			return c.at(wall), nil
		}
		if c.To.Before(wall) && c.To.After(missing.Before) {
			missing.Before = c.To
		}
		if c.From.After(wall) && (missing.After.IsZero() || c.From.Before(missing.After)) {
			missing.After = c.From
		}
	}
	for _, c := range slices.Backward(a.captures) {
		if wall.Sub(c.To) <= nearby && c.To.Equal(missing.Before) || c.From.Sub(wall) <= nearby && c.From.Equal(missing.After) {
			return c.at(wall), nil
		}
	}
	return Moment{}, missing
}

// at returns a moment in or near a capture.
func (c *Capture) at(wall time.Time) Moment {
	switch {
	case !wall.After(c.From):
		return Moment{c, c.Begin, c.From}
	case !wall.Before(c.To):
		return Moment{c, c.End, c.To}
	}
	return Moment{c, min(c.Begin+uint64(wall.Sub(c.From)), c.End), wall}
}

// Span returns when the archive begins and ends. ok is false if it is empty.
func (a *Archive) Span() (from, to time.Time, ok bool) {
	for _, c := range a.captures {
		if !ok || c.From.Before(from) {
			from = c.From
		}
		if !ok || c.To.After(to) {
			to = c.To
		}
		ok = true
	}
	return from, to, ok
}

// Between returns the captures that have something of an interval.
func (a *Archive) Between(from, to time.Time) (list []*Capture) {
	for _, c := range a.captures {
		if !c.To.Before(from) && !c.From.After(to) {
			list = append(list, c)
		}
	}
	return list
}

// Gap is a time that the archive lacks.
type Gap struct {
	From, To time.Time
	Reboot   bool // the machine was started again
	Session  bool // vramprof was
}

// shortGap is what lies between two captures at most, if nothing is missing.
const shortGap = 2 * time.Second

// Gaps returns what lies between captures.
func (a *Archive) Gaps() (list []Gap) {
	for i := 1; i < len(a.captures); i++ {
		p, c := a.captures[i-1], a.captures[i]
		if c.From.Sub(p.To) > shortGap {
			list = append(list, Gap{From: p.To, To: c.From, Reboot: p.Boot != c.Boot, Session: p.Session != c.Session})
		}
	}
	return list
}
