// SPDX-License-Identifier: Apache-2.0

package html

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/tracer/ledger"
)

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
