// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"fmt"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// openArchive begins to write the archive, unless dir is "".
func (s *server) openArchive(dir string, o archive.Options) (err error) {
	if dir == "" {
		return nil
	}
	o.Host = s.host
	o.Note = func(text string) { s.log.Warn(text) }
	o.Opening = func(to ledger.Books) {
		if s.tracer() != nil { // else the books are empty
			s.tracer().Opening(to)
		}
	}
	s.archive, err = archive.NewWriter(dir, o)
	if errors.Is(err, archive.ErrInUse) {
		err = fmt.Errorf("%w (use another --archive)", err)
	}
	if err != nil {
		return fault.New(fault.Failed, err)
	}
	s.session.Trace.Capture = s.archive
	return nil
}

// endArchive writes what is left.
func (s *server) endArchive() {
	if s.archive == nil {
		return
	}
	var last error
	if s.tracing.Load() {
		last = s.archive.End(s.session.Snapshot())
	} else {
		last = s.archive.End(nil)
	}
	if last != nil {
		s.log.Error("end the archive", "error", last)
	}
}
