// SPDX-License-Identifier: Apache-2.0

package html

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Live is what a page needs that is served, and follows a session or shows a moment of an archive.
// Its server answers at the relative addresses "events" and "data".
type Live struct {
	Past bool // a moment of an archive: the page does not follow the session

	From, To time.Time // of the archive; zero: there is none
	Errors   []Error   // out-of-memory errors, the latest first
	More     uint64    // errors that Errors lacks
}

// Error is an out-of-memory error.
type Error struct {
	report.OOM
	Wall   time.Time
	Frames callstack.Stacks // has OOM.Stack; nil: unknown
}

// liveData is the part of a page's data about its server.
type liveData struct {
	Past   bool        `json:"past"`
	From   int64       `json:"from"` // ms since 1970; 0: there is no archive
	To     int64       `json:"to"`
	Errors []errorData `json:"errors"`
	More   uint64      `json:"more"`
}

type errorData struct {
	Wall    int64  `json:"wall"` // ms since 1970
	Time    int64  `json:"time"` // ns since the begin of the session; -1: before it
	Process string `json:"process"`
	Text    string `json:"text"` // "ran out of memory on cuda:0 (wanted 2.00 GiB)"
	Where   string `json:"where,omitempty"`
}

const maxErrors = 100 // of a page

func newLive(in *Input) *liveData {
	l := in.Live
	if l == nil {
		return nil
	}
	d := &liveData{Past: l.Past, Errors: []errorData{}, More: l.More}
	if !l.From.IsZero() {
		d.From, d.To = l.From.UnixMilli(), l.To.UnixMilli()
	}
	for i := range l.Errors {
		if i == maxErrors {
			d.More += uint64(len(l.Errors) - i)
			break
		}
		d.Errors = append(d.Errors, newError(in, &l.Errors[i]))
	}
	return d
}

func newError(in *Input, e *Error) errorData {
	p := ledger.Process{PID: e.PID, Comm: e.Comm}
	d := errorData{Wall: e.Wall.UnixMilli(), Time: -1, Process: shorten(format.Process(&p)), Text: shorten(untrusted.Clean(e.Text()))}
	if s := in.Snapshot; e.Time >= s.Begin && e.Time <= s.End && !in.Live.Past {
		d.Time = int64(e.Time - s.Begin)
	}
	if e.Frames != nil && e.Stack != 0 {
		list := frames.Visible(e.Frames, e.Stack, e.API)
		d.Where = shorten(format.Join(frames.Parts(&list[frames.Headline(list)])))
	}
	return d
}

// Section is a named part of a page's data, as JSON without <, > and &.
type Section struct {
	Name string
	JSON []byte
}

// Sections returns the data of a page in sections, of which a server sends those that change.
func Sections(in Input) ([]Section, error) {
	if err := in.check(); err != nil {
		return nil, fmt.Errorf("compose page: %w", err)
	}
	p := newPayload(&in)
	var list []Section
	for _, x := range []struct {
		name  string
		value any
	}{
		{"v", p.Version}, {"title", p.Title}, {"host", p.Host}, {"until", p.Until}, {"wall", p.Wall}, {"traced", p.Traced}, {"end", p.End},
		{"strings", p.Strings}, {"planes", p.Planes}, {"apart", p.Apart}, {"processes", p.Processes}, {"gpus", p.GPUs}, {"frames", p.Frames}, {"before", p.Before},
		{"tree", p.Tree}, {"entries", p.Entries}, {"chart", p.Chart}, {"opening", p.Opening}, {"verdicts", p.Verdicts}, {"kept", p.Kept}, {"advice", p.Advice},
		{"parts", p.Parts}, {"remarks", p.Remarks}, {"doubts", p.Doubts}, {"warnings", p.Warnings}, {"live", p.Live},
	} {
		text, err := json.Marshal(x.value)
		if err != nil {
			return nil, fmt.Errorf("compose page: %w", err)
		}
		list = append(list, Section{x.name, text})
	}
	return list, nil
}

// Join returns sections as one JSON object.
func Join(list []Section) []byte {
	out := []byte{'{'}
	for i, x := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = append(out, x.Name...)
		out = append(out, '"', ':')
		out = append(out, x.JSON...)
	}
	return append(out, '}')
}

// Changed returns the sections of now that differ from those of before.
func Changed(before, now []Section) (list []Section) {
	for i, x := range now {
		if i >= len(before) || !bytes.Equal(before[i].JSON, x.JSON) {
			list = append(list, x)
		}
	}
	return list
}

// servedScripts are those of a page that is served.
var servedScripts = slices.Insert(slices.Clone(scripts), len(scripts)-1, "errors", "live", "updates", "follow")

// Page returns a page that is served, and its Content-Security-Policy: nothing but the page's own
// script runs, which connects to its server only, and no other page can frame it.
func Page(data []Section) (page []byte, policy string, err error) {
	kind, text, err := encode(Join(data))
	if err != nil {
		return nil, "", fmt.Errorf("compose page: %w", err)
	}
	page, policy, err = assemble(kind, text, servedScripts, "; connect-src 'self'")
	if err != nil {
		return nil, "", fmt.Errorf("compose page: %w", err)
	}
	return page, policy + unframed, nil
}
