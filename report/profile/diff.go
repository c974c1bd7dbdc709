// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Profile is a pprof profile in memory.
type Profile struct {
	p    *profile.Profile
	mine *regexp.Regexp // nil: the rules of package frames
}

// Mine returns the same profile, in which the user's own code is what re matches, as frames.Mine
// has it. A nil re changes nothing.
func (p Profile) Mine(re *regexp.Regexp) Profile { return Profile{p.p, re} }

// New returns the profile of a snapshot.
func New(s *ledger.Snapshot, st callstack.Stacks) Profile {
	return Profile{p: newProfile(s, st)}
}

// Read reads a gzip-compressed pprof profile that vramprof wrote. Profiles without inuse_space,
// larger than 512 MiB, or with missing locations or mappings are errors. The error is a *LimitError
// for one that takes more memory than a real one of its size.
func Read(r io.Reader) (Profile, error) { return read(r, false) }

// ReadUnlimited is Read without the limits that depend on the size of the file: only for a profile
// that cannot be forged.
func ReadUnlimited(r io.Reader) (Profile, error) { return read(r, true) }

func read(r io.Reader, unlimited bool) (Profile, error) {
	text, size, err := unpack(r, unlimited)
	if err == nil && !unlimited {
		err = checkMemory(text, size)
	}
	if err != nil {
		return Profile{}, fmt.Errorf("read profile: %w", err)
	}
	p, err := parseProfile(text)
	if err != nil {
		return Profile{}, fmt.Errorf("read profile: %w", err)
	}
	if valueOf(p, "inuse_space") < 0 {
		return Profile{}, errors.New("read profile: it has no inuse_space: it is no profile of memory")
	}
	return Profile{p: p}, nil
}

// parseProfile parses uncompressed data: ParseData would unpack once more, without a limit. A panic
// of the parser becomes an error.
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

// Diff sums the GPU memory of two profiles by line of the user's own code, plane, device and
// program, and by holder. Pids are ignored: those of two runs differ.
func Diff(a, b Profile) compare.Difference {
	d := compare.Difference{Lines: diffLines(a, b)}
	d.Holders, d.Known = diffHolders(a, b)
	return d
}

func diffLines(a, b Profile) []compare.Change {
	type key struct {
		report.LineKey
		where string
	}
	at := map[key]int{}
	var rows []compare.Change
	var calls []apart.Calls
	add := func(from Profile, value func(*compare.Change) *int64) {
		bytes := valueOf(from.p, "inuse_space")
		for _, x := range from.p.Sample {
			if x.Value[bytes] == 0 {
				continue
			}
			stack, head := from.line(x)
			f := stack[head]
			where := format.Join(label(x, "comm"), report.PlaneName(label(x, "plane")), label(x, "device"))
			k := key{report.LineKeyOf(&f), where}
			i, ok := at[k]
			if !ok {
				i = len(rows)
				at[k] = i
				rows, calls = append(rows, compare.Change{Frame: f, Where: where}), append(calls, apart.Calls{})
			}
			if !f.Mark {
				calls[i].Add(stack, head, uint64(max(x.Value[bytes], 0)))
			}
			*value(&rows[i]) += x.Value[bytes]
		}
	}
	add(a, func(c *compare.Change) *int64 { return &c.Before })
	add(b, func(c *compare.Change) *int64 { return &c.After })
	for i := range rows {
		rows[i].Calls = calls[i].Names()
	}
	slices.SortStableFunc(rows, func(x, y compare.Change) int {
		return cmp.Or(cmp.Compare(report.Magnitude(y.After-y.Before), report.Magnitude(x.After-x.Before)), cmp.Compare(y.After, x.After))
	})
	return rows
}

// line returns the stack of a sample, and the index of the frame that stands for it: its headline,
// or the mark of memory that no line allocated.
func (p Profile) line(x *profile.Sample) (list []callstack.Frame, at int) {
	list = profileFrames(x)
	frames.MarkMine(list, p.mine)
	switch root := list[len(list)-1]; {
	case root.Mark && (root.Function == report.MarkOlder || root.Function == report.MarkUntraced): // above it is a holder's path
		return list, len(list) - 1
	case len(x.Location) > 0 && list[0].Mark:
		return list, 0
	}
	return list, frames.Headline(list)
}

// diffHolders sums the GPU memory of two profiles by holder, device and program.
func diffHolders(a, b Profile) (list []compare.HolderChange, known [2]bool) {
	type key struct{ holder, where string }
	at := map[key]int{}
	for k, p := range []*profile.Profile{a.p, b.p} {
		bytes := valueOf(p, "inuse_space")
		for _, x := range p.Sample {
			name := label(x, "holder")
			if name == "" || x.Value[bytes] == 0 {
				continue
			}
			known[k] = true
			by := key{name, format.Join(label(x, "comm"), label(x, "device"))}
			i, ok := at[by]
			if !ok {
				i = len(list)
				at[by] = i
				list = append(list, compare.HolderChange{Holder: name, Where: by.where})
			}
			*[]*int64{&list[i].Before, &list[i].After}[k] += x.Value[bytes]
		}
	}
	if !known[0] || !known[1] {
		return nil, known
	}
	list = slices.DeleteFunc(list, func(c compare.HolderChange) bool { return c.Before == c.After })
	slices.SortStableFunc(list, func(x, y compare.HolderChange) int {
		return cmp.Or(cmp.Compare(report.Magnitude(y.After-y.Before), report.Magnitude(x.After-x.Before)), cmp.Compare(x.Holder, y.Holder))
	})
	return list, known
}

func label(x *profile.Sample, key string) string {
	if list := x.Label[key]; len(list) > 0 {
		return untrusted.Clean(unquoted.Replace(list[0]))
	}
	return ""
}

// profileFrames returns a sample's stack, leaf first and never empty.
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
	if label(x, "callee") != "" { // the traced call was cut off
		at := max(slices.IndexFunc(list, func(f callstack.Frame) bool { return !f.Mark }), 0) // [pytorch cache] is above it
		list = slices.Insert(list, at, callstack.Frame{Function: label(x, "api")})
	}
	if len(list) == 0 {
		list = append(list, callstack.Frame{Function: "[no stack trace: none in the profile]", Mark: true})
	}
	return list
}

// WriteDifference writes b minus a as a pprof profile. Values are negative where b has less.
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
