// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/capture"
)

const (
	indexVersion = 1
	maxIndex     = 4 << 20 // bytes of the file
)

// Index is what a capture contains, in short. It stands beside the capture, and can be composed
// from it.
type Index struct {
	Version   int       `json:"version"`
	Size      int64     `json:"size"` // of the capture that it describes
	Host      string    `json:"host"`
	Boot      string    `json:"boot"`    // the boot that the times count from
	Session   string    `json:"session"` // the same for all captures of one session
	Part      uint32    `json:"part"`    // number in the session, from 0
	Begin     uint64    `json:"begin"`   // ns of CLOCK_MONOTONIC
	End       uint64    `json:"end"`
	From      time.Time `json:"from"` // the same moments in time of day
	To        time.Time `json:"to"`
	Complete  bool      `json:"complete"` // it has an end: neither a kill nor the disk cut it off
	Events    uint64    `json:"events"`
	Lost      uint64    `json:"lost,omitempty"` // events that the capture lacks
	Processes []Process `json:"processes"`
	More      uint64    `json:"more,omitempty"` // processes without an entry
	OOMs      []OOM     `json:"ooms,omitempty"`
	MoreOOMs  uint64    `json:"more_ooms,omitempty"`
}

// of fills in what the Writer knows of a part.
func (x *Index) of(p *part, w *Writer, s capture.Stored, complete bool) {
	x.Version, x.Size = indexVersion, s.Bytes
	x.Host, x.Boot, x.Session, x.Part = clean(w.o.Host), w.boot, w.session, p.serial
	x.Begin, x.End = p.begin, p.end
	if !complete {
		x.End = max(s.Time, p.begin)
	}
	x.From, x.To = p.wall(x.Begin).UTC(), p.wall(x.End).UTC()
	x.Complete, x.Events, x.Lost = complete, p.applied, p.lost()
}

// writeIndex returns the size of the file, 0 if it could not be written: it can be composed later.
func (w *Writer) writeIndex(name string, x *Index) int64 {
	b, err := json.Marshal(x)
	if err != nil || len(b) > maxIndex {
		return 0
	}
	f, err := createNew(w.dir, name)
	if err != nil {
		return 0
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = w.dir.Remove(name)
		return 0
	}
	return int64(len(b))
}

// writeMissingIndex writes the index of one capture that a killed Writer has left without, or
// removes the capture if nothing is in it.
func (w *Writer) writeMissingIndex() {
	for i := len(w.files) - 1; i >= 0; i-- {
		f := &w.files[i]
		if f.index != 0 {
			continue
		}
		x, err := w.composeIndex(f.file())
		switch {
		case err != nil && f.size < leastFile || err == nil && x.Begin == 0:
			w.remove(i) // it was cut off as it began
		case err != nil:
			f.index = w.writeIndex(f.side(), &Index{Version: indexVersion, Size: f.size})
		default:
			f.index = w.writeIndex(f.side(), x)
		}
		return
	}
}

// leastFile is the size below which a capture that cannot be read has nothing.
const leastFile = 4 << 10

// readIndex reads an index. It returns nil if it does not describe a capture of that size.
func readIndex(dir *os.Root, name string, size int64) *Index {
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxIndex+1))
	if err != nil || len(b) > maxIndex {
		return nil
	}
	x := &Index{}
	if json.Unmarshal(b, x) != nil || x.Version != indexVersion || x.Size != size {
		return nil
	}
	x.clean()
	return x
}

// composeIndex reads a whole capture of the folder.
func (w *Writer) composeIndex(name string) (*Index, error) {
	f, err := w.dir.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	r, err := capture.NewReader(f, info.Size())
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return indexOf(r)
}

// composeIndex reads a whole capture.
func composeIndex(path string) (*Index, error) {
	r, err := capture.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return indexOf(r)
}

func indexOf(r *capture.Reader) (*Index, error) {
	var s summary
	if err := r.Play(^uint64(0), &s); err != nil {
		return nil, err
	}
	x := s.index()
	x.Version, x.Size = indexVersion, r.Size()
	x.Host, x.Boot = clean(r.Host()), r.Boot()
	x.Session, x.Part = r.Session()
	x.Begin, x.End = r.Opened(), r.End()
	x.From, x.To = r.Wall(x.Begin).UTC(), r.Wall(x.End).UTC()
	x.Complete, x.Events = r.Ended(), r.Events()
	return x, nil
}
