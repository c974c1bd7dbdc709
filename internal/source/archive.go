// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"os"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/capture"
)

// IsArchive reports whether a path is a folder, so that it can only be an archive.
func IsArchive(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// OpenArchive lists an archive.
func OpenArchive(path string) (*archive.Archive, error) {
	a, err := archive.Open(path)
	if err != nil {
		return nil, fault.New(fault.Failed, err)
	}
	if len(a.Captures()) == 0 && len(a.Problems()) == 0 {
		return nil, fault.New(fault.Failed, fmt.Errorf("read %s: no capture is in the folder", untrusted.Clean(path)))
	}
	return a, nil
}

// Open opens a capture, or the capture of an archive that has the moments.
func (o Options) Open(path string, moments ...*Moment) (*capture.Reader, func(), error) {
	if IsArchive(path) {
		return o.readArchive(path, moments...)
	}
	return o.Capture(path)
}

// readArchive opens the capture of an archive that has all of the moments, and sets where they are
// in it.
func (o Options) readArchive(path string, moments ...*Moment) (*capture.Reader, func(), error) {
	a, err := OpenArchive(path)
	if err != nil {
		return nil, nil, err
	}
	var in *archive.Capture
	for _, m := range moments {
		found, err := m.InArchive(a)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", untrusted.Clean(path), err)
		}
		if in != nil && in != found.Capture {
			return nil, nil, fault.Usage(fmt.Errorf("the moments are in different captures of %s: \"vramprof report --between\" and \"vramprof diff %s@MOMENT %s@MOMENT\" compare them", path, path, path))
		}
		in, m.found = found.Capture, &found.Time
	}
	if in == nil {
		list := a.Captures()
		if len(list) == 0 {
			return nil, nil, fault.New(fault.Failed, fmt.Errorf("%s: no capture is in it", untrusted.Clean(path)))
		}
		in = list[len(list)-1]
	}
	return o.Capture(in.Path)
}

// InArchive finds a moment.
func (m Moment) InArchive(a *archive.Archive) (archive.Moment, error) {
	list := a.Captures()
	from, to, ok := a.Span()
	switch {
	case !ok:
		return archive.Moment{}, fault.New(fault.Failed, errors.New("no capture is in it"))
	case m.end:
		last := list[len(list)-1]
		return archive.Moment{Capture: last, Time: last.End, Wall: last.To}, nil
	case m.text == "begin":
		return archive.Moment{Capture: list[0], Time: list[0].Begin, Wall: list[0].From}, nil
	case m.wall == nil:
		return archive.Moment{}, fault.Usage(fmt.Errorf("%q is not a moment of an archive (03:12, 'yesterday 03:12', '%s', -2h, begin, end)", m.text, from.Local().Format("2006-01-02 15:04")))
	}
	found, err := a.At(m.wall.in(to).Local())
	if err != nil {
		return found, fault.New(fault.Failed, err)
	}
	return found, nil
}
