// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// savedVersion is the "version" of a saved measurement. Fields are only added within a version.
const savedVersion = 1

const maxSaved = 64 << 20

var errNotSaved = errors.New("not a saved measurement")

// saved is a measurement in a file.
type saved struct {
	Kind    string       `json:"kind"`
	Version int          `json:"version"`
	Tool    string       `json:"tool"`
	Command string       `json:"command"`
	Run     *Measurement `json:"measurement"`
}

const savedKind = "vramprof ci baseline"

// Save writes what was measured as a baseline for later runs.
func (r *Result) Save(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(saved{savedKind, savedVersion, r.Tool, untrusted.Clean(r.Command), r.Now})
}

// readSaved reads what Save wrote. The error is errNotSaved for any other file.
func readSaved(r io.Reader) (*Measurement, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSaved))
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(bytes.TrimLeft(text, " \r\n\t"), []byte("{")) {
		return nil, errNotSaved
	}
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("baseline: %w", err)
	}
	switch {
	case s.Kind != savedKind || s.Run == nil:
		return nil, errors.New("it is JSON, but no baseline that vramprof ci saved")
	case s.Version != savedVersion:
		return nil, fmt.Errorf("its version is %d, and this vramprof reads %d", s.Version, savedVersion)
	}
	for i := range s.Run.Lines {
		l := &s.Run.Lines[i]
		l.Function, l.File, l.Text = untrusted.Clean(l.Function), untrusted.Clean(l.File), untrusted.Clean(l.Text)
	}
	return s.Run, nil
}
