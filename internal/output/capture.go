// SPDX-License-Identifier: Apache-2.0

package output

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// CaptureFile is a capture that is being written. It gets its name when tracing begins, so that it
// exists however vramprof ends.
type CaptureFile struct {
	*File
	Writer *capture.Writer
	named  bool
	ended  bool

	stream Destination // destination of the finished capture; File is then a file without a name
}

// CreateCapture creates the file of a capture, which has no name yet. A path that IsStream gets the
// capture when Finish has completed it.
func CreateCapture(path string, force bool, options capture.Options) (*CaptureFile, error) {
	o, to, err := captureOutput(path, force)
	if err != nil {
		return nil, err
	}
	w, err := capture.NewWriter(o, options)
	if err != nil {
		o.Discard()
		return nil, o.Failed(err)
	}
	return &CaptureFile{File: o, Writer: w, stream: to}, nil
}

// captureOutput creates the file of a capture. Its parts are not written in order, so for a stream
// it creates an unnamed file first.
func captureOutput(path string, force bool) (o *File, to Destination, err error) {
	if !IsStream(path) {
		o, err = Create(path, force)
		return o, nil, err
	}
	if to, err = openStream(path, Capture.Binary); err != nil {
		return nil, nil, err
	}
	f, err := Temporary()
	if err != nil {
		to.Discard()
		return nil, nil, err
	}
	return &File{File: f, path: path, shared: true}, to, nil
}

// Publish gives the file its name. The capture of a stream has none. It returns ErrExists if a file
// appeared there meanwhile, unless force was set.
func (f *CaptureFile) Publish() error {
	if f.stream != nil {
		return nil
	}
	if err := f.publish(); err != nil {
		if os.IsExist(err) {
			err = ErrExists
		}
		return f.Failed(err)
	}
	f.named = true
	return nil
}

// Finish ends the capture with the last snapshot. An error leaves a capture that can be read.
func (f *CaptureFile) Finish(snapshot *ledger.Snapshot) error {
	f.ended = true
	err := f.Writer.End(snapshot)
	if f.stream != nil {
		return errors.Join(err, f.copyTo(f.stream))
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	f.closeFolder()
	if err != nil {
		return f.Failed(err)
	}
	return nil
}

// copyTo copies the finished capture into a stream.
func (f *CaptureFile) copyTo(to Destination) error {
	defer f.Close()
	return to.Save(func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(f, 0, 1<<62))
		return err
	}, DefaultName(time.Now())+Capture.Suffix)
}

// IsStdout implements Destination.
func (f *CaptureFile) IsStdout() bool { return f.stream != nil && f.stream.IsStdout() }

// Discard removes a capture that was not finished. After Finish, and on nil, it does nothing.
func (f *CaptureFile) Discard() {
	if f == nil || f.ended {
		return
	}
	f.ended = true
	_ = f.Writer.End(nil)
	if f.stream != nil {
		f.stream.Discard()
		f.Close()
		return
	}
	if f.named && f.dir.isFile(f.File.name, f.File.File) { // it has not been replaced
		f.dir.Remove(f.File.name)
	}
	f.File.Discard()
}
