// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Profile is what WriteProfile writes, before it is written.
type Profile struct{ p *profile.Profile }

// NewProfile makes the profile of a snapshot.
func NewProfile(s *ledger.Snapshot, st callstack.Stacks) Profile {
	return Profile{newProfile(s, st)}
}

// maxProfile is how many bytes a profile may have when it is unpacked; one of 10,000 sites has 6 MiB.
const maxProfile = 512 << 20

// ReadProfile reads a pprof profile of ours, which is compressed. Lines and mappings that it
// names but does not have are an error.
func ReadProfile(r io.Reader) (Profile, error) {
	unpacked, err := gzip.NewReader(r)
	if err != nil {
		return Profile{}, fmt.Errorf("read profile: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(unpacked, maxProfile+1))
	if err != nil {
		return Profile{}, fmt.Errorf("read profile: %w", err)
	}
	if len(text) > maxProfile {
		return Profile{}, fmt.Errorf("read profile: it is larger than %d MiB", maxProfile>>20)
	}
	p, err := parseProfile(text)
	if err != nil {
		return Profile{}, fmt.Errorf("read profile: %w", err)
	}
	if valueOf(p, "inuse_space") < 0 {
		return Profile{}, errors.New("read profile: it has no inuse_space: it is no profile of memory")
	}
	return Profile{p}, nil
}

// parseProfile parses what is not compressed (ParseData would unpack once more, without a limit), and
// makes an error of a panic of the parser.
func parseProfile(text []byte) (p *profile.Profile, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, fmt.Errorf("panic: %v", r)
		}
	}()
	if p, err = profile.ParseUncompressed(text); err != nil {
		return nil, err
	}
	return p, p.CheckValid()
}

func valueOf(p *profile.Profile, name string) int {
	return slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == name })
}

// DiffOptions of WriteDiff.
type DiffOptions struct {
	Top   int // lines shown, 0: 10
	Width int // columns, 0: 80
	Color bool
	Names [2]string // what the two are called: their files, or moments
}

// diffRow is a line of the user's own code, and what it held before and after.
type diffRow struct {
	frame         callstack.Frame
	where         string
	before, after int64
}

// WriteDiff writes which lines of the user's own code hold more GPU memory in b than in a, and which less.
func WriteDiff(w io.Writer, a, b Profile, o DiffOptions) error {
	if o.Top <= 0 {
		o.Top = 10
	}
	rows := diffRows(a.p, b.p)
	var before, after int64
	for i := range rows {
		before += rows[i].before
		after += rows[i].after
	}
	p := newPage(o.Width, o.Color)
	p.list(plain, 0, " ", "From "+untrusted.Clean(o.Names[0]), "to "+untrusted.Clean(o.Names[1]))
	p.line(plain, 0, "")
	p.text(bold, 0, fmt.Sprintf("GPU memory: %s, %s → %s", signedBytes(after-before), signedTotal(before), signedTotal(after)))
	p.line(plain, 0, "")
	rows = slices.DeleteFunc(rows, func(r diffRow) bool { return r.before == r.after })
	for _, r := range rows[:min(len(rows), o.Top)] {
		p.headLine(plain, pad(signedBytes(r.after-r.before), -10), r.frame)
		p.list(dim, min(12, p.width/6), ", ", signedTotal(r.before)+" → "+signedTotal(r.after), r.where)
	}
	if len(rows) > o.Top {
		p.text(dim, 0, counted(uint64(len(rows)-o.Top), "more line")+" (-T shows more)")
	}
	return p.writeTo(w)
}

// diffRows sums both profiles by line, plane, device and program, largest change first. Pids are left out: those of
// two runs differ.
func diffRows(a, b *profile.Profile) []diffRow {
	type key struct {
		branchKey
		where string
	}
	at := map[key]int{}
	var rows []diffRow
	add := func(p *profile.Profile, value func(*diffRow) *int64) {
		bytes := valueOf(p, "inuse_space")
		for _, x := range p.Sample {
			if x.Value[bytes] == 0 {
				continue
			}
			list := profileFrames(x)
			f := list[frames.Headline(list)]
			if len(x.Location) > 0 && list[0].Mark {
				f = list[0]
			}
			where := words(label(x, "comm"), label(x, "plane"), label(x, "device"))
			k := key{branchKey{frames.Name(&f), f.File, f.Line, f.Python}, where}
			i, ok := at[k]
			if !ok {
				i = len(rows)
				at[k] = i
				rows = append(rows, diffRow{frame: f, where: where})
			}
			*value(&rows[i]) += x.Value[bytes]
		}
	}
	add(a, func(r *diffRow) *int64 { return &r.before })
	add(b, func(r *diffRow) *int64 { return &r.after })
	slices.SortStableFunc(rows, func(x, y diffRow) int {
		return cmp.Or(cmp.Compare(magnitude(y.after-y.before), magnitude(x.after-x.before)), cmp.Compare(y.after, x.after))
	})
	return rows
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

func label(x *profile.Sample, key string) string {
	if list := x.Label[key]; len(list) > 0 {
		return untrusted.Clean(list[0])
	}
	return ""
}

// profileFrames gives a sample's stack as symbolize does, leaf first; never empty.
func profileFrames(x *profile.Sample) []callstack.Frame {
	var list []callstack.Frame
	for _, l := range x.Location {
		for i, line := range l.Line {
			if line.Function == nil {
				continue
			}
			f := callstack.Frame{
				Function: line.Function.Name, SystemName: line.Function.SystemName, File: line.Function.Filename,
				Line: int(line.Line), Address: l.Address, Inlined: i+1 < len(l.Line),
			}
			switch m := l.Mapping; {
			case m == nil:
				f.Mark = len(f.Function) > 0 && f.Function[0] == '['
			case m.File == "[python]":
				f.Python = true
			default:
				f.Mapping = &callstack.Mapping{Path: m.File, BuildID: m.BuildID, Start: m.Start, Limit: m.Limit, Offset: m.Offset}
			}
			list = append(list, f)
		}
	}
	if len(list) == 0 {
		list = append(list, callstack.Frame{Function: "[no stack]", Mark: true})
	}
	return list
}

// WriteDifference writes b minus a as a pprof profile, with negative values where there is less in b.
func WriteDifference(w io.Writer, a, b Profile) error {
	base := a.p.Copy()
	base.Scale(-1)
	base.Comments = nil
	sum, err := profile.Merge([]*profile.Profile{base, b.p})
	if err != nil {
		return fmt.Errorf("compare profiles: %w", err)
	}
	sum.TimeNanos, sum.DurationNanos = b.p.TimeNanos, max(b.p.TimeNanos-a.p.TimeNanos, 0)
	if err := sum.Write(w); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	return nil
}
