// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Letter returns the sign of a kind in bars.
func (k Kind) Letter() byte {
	const letters = "WGOBAgIKSTRcLPDXrbb?u"
	if i := slices.Index(Kinds, k); i >= 0 {
		return letters[i]
	}
	return '?'
}

// Title returns "python3 [4242] on cuda:0, GPU-1a2b3c4d".
func (b *Balance) Title(s *ledger.Snapshot) string {
	text := format.Process(&s.Processes[b.Process])
	switch {
	case b.Device >= 0:
		text += " on " + format.Device(b.Device, ledger.Device)
	case b.UUID != "":
		text += " on a GPU"
	}
	if b.UUID != "" {
		text += ", " + format.ShortUUID(untrusted.Clean(b.UUID))
	}
	return text
}

// Largest returns the rows by size, largest first, at most so many. If there are more, the smallest
// are summed: then more is how many, and rest their bytes. It returns at least one.
func (b *Balance) Largest(most int) (rows []Row, more int, rest int64) {
	rows = slices.Clone(b.Rows)
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(b.Bytes, a.Bytes) })
	if most = max(most, 1); len(rows) <= most {
		return rows, 0, 0
	}
	for _, r := range rows[most-1:] {
		rest += r.Bytes
		more++
	}
	return rows[:most-1], more, rest
}

// cacheNames are what reports call parts of the cache.
var cacheNames = map[report.CacheKind]string{
	report.CacheIdle:    "can go back to the driver",
	report.CacheHeld:    "stuck next to live tensors",
	report.CacheSmall:   "stuck: rests of at most 1 MiB",
	report.CacheStreams: "stranded on other streams",
	report.CachePools:   "stranded in MemPools",
	report.CachePending: "freed, a stream may still use it",
	"":                  "not divided: the allocator was not read",
}

// Name returns what reports call a piece of a row.
func (p *Piece) Name(kind Kind) string {
	switch {
	case kind == Cache:
		return cacheNames[p.Cache]
	case p.Module != "":
		return untrusted.Clean(p.Module)
	case p.Holder != "":
		return untrusted.Clean(p.Holder)
	case kind == Activations:
		return "no module is known"
	case p.Pool > 0 && p.Line != "":
		return p.Part + " of " + format.Bytes(p.Pool) + ": " + untrusted.Clean(p.Line)
	case p.Pool > 0:
		return p.Part + " of " + format.Bytes(p.Pool)
	case p.Part != "" && p.Line != "":
		return p.Part + ": " + untrusted.Clean(p.Line)
	case p.Part == "" && p.Line == "":
		return "no line is known"
	}
	return p.Part + untrusted.Clean(p.Line)
}

// Known returns how the purpose of a row is known: "holders", "stacks", "holders 60%"; "" if the
// row is no tensors, or its purpose is unknown.
func (r *Row) Known() string {
	const most = 0.995
	if r.Kind == Tensors || r.Bytes <= 0 || r.ByHolders+r.ByStacks == 0 {
		return ""
	}
	share := float64(r.ByHolders) / float64(r.Bytes)
	switch {
	case share >= most:
		return "holders"
	case r.ByHolders == 0:
		return "stacks"
	}
	return fmt.Sprintf("holders %.0f%%", 100*share)
}

// near is how far a walk may be from a moment without a word on it.
const near = 100 * time.Millisecond

// Notes returns what the figures of a balance leave open, as sentences.
func (b *Balance) Notes(s *ledger.Snapshot) (list []string) {
	if !b.Read {
		list = append(list, "NVML gave no figure for the process: the sum is what the allocations add up to.")
	}
	if text := report.BeyondText(s, b.Process, b.Beyond); text != "" {
		list = append(list, text+".")
	}
	switch {
	case b.Walked == 0 && s.Unattached:
		if b.hasTensors() {
			list = append(list, "No holders are known, and without probes no stack traces: nothing shows what tensors are for.")
		}
	case b.Walked == 0:
		if b.hasTensors() {
			list = append(list, "No holders are known: stack traces alone show what tensors are for.")
		}
	case distance(b.Walked, s.End) > uint64(near):
		list = append(list, "Holders were read "+fromMoment(b.Walked, s.End)+": they divide what each line had then, and stack traces the rest.")
	}
	if text := b.agreeText(); text != "" {
		list = append(list, text)
	}
	if b.InModules > 0 {
		list = append(list, fmt.Sprintf("Activations are divided by the parameters in the autograd graph: %.0f%% of those in modules were saved next to parameters of the module itself, the others between parameters of it.", 100*float64(b.SureModules)/float64(b.InModules)))
	}
	if b.Use != nil {
		list = append(list, b.Use.note(b.KVCache()))
	}
	list = append(list, b.idleNotes()...)
	list = append(list, b.arenaNotes()...)
	if slices.ContainsFunc(b.Rows, func(r Row) bool { return r.Kind == Backward }) {
		list = append(list, "Backward pass: stack traces do not tell temporaries from gradients of parameters, and no walk saw who kept them.")
	}
	if b.CacheRead != 0 {
		list = append(list, "The cache is divided as it was "+fromMoment(b.CacheRead, s.End)+", when PyTorch's allocator was read.")
	}
	return list
}

// leastBoth is the least share of a balance that both holders and stacks must know, so that their
// agreement is a word on the whole.
const leastBoth = 0.005

// agreeText compares holders with stack traces, "" where too little is known by both.
func (b *Balance) agreeText() string {
	both := format.Bytes(b.Both)
	switch share := float64(b.Same) / float64(max(b.Both, 1)); {
	case float64(b.Both) < leastBoth*float64(b.Bytes), b.Both == 0:
		return ""
	case b.Same == b.Both:
		return "Where both holders and stack traces show a purpose, they agree: " + both + "."
	case share < 0.0005:
		return "Where both holders and stack traces show a purpose, they differ: holders decide for these " + both + "."
	default:
		return fmt.Sprintf("Holders and stack traces agree on %.1f%% of the %s where both show a purpose; where they differ, holders decide.", 100*share, both)
	}
}

// idleNotes returns what is known of how much of libraries' pools is idle.
func (b *Balance) idleNotes() (list []string) {
	by := map[Idle][]string{}
	for i := range b.Rows {
		r := &b.Rows[i]
		for k := range r.Pieces {
			p := &r.Pieces[k]
			name := r.Name()
			if p.Part != "" {
				name += " (" + p.Part + ")"
			}
			if p.Idle != "" && !slices.Contains(by[p.Idle], name) {
				by[p.Idle] = append(by[p.Idle], name)
			}
		}
	}
	if names := by[IdleBetween]; len(names) > 0 {
		list = append(list, "Scratch memory of single operations, all of it idle between evaluations: "+strings.Join(names, ", ")+".")
	}
	if names := by[IdleRunning]; len(names) > 0 {
		list = append(list, "How much of a pool is idle, vramprof explain -p PID reads from the process while it runs: "+strings.Join(names, ", ")+".")
	}
	if names := by[IdleUnknown]; len(names) > 0 {
		list = append(list, "Pools of which the idle part is not known: "+strings.Join(names, ", ")+".")
	}
	return list
}

// arenaNotes returns how much of the arenas of each library is idle.
func (b *Balance) arenaNotes() (list []string) {
	counts, sums := map[string]uint64{}, map[string]Arena{}
	for _, a := range b.Arenas {
		x := sums[a.Library]
		sums[a.Library] = Arena{a.Library, x.Bytes + a.Bytes, x.InUse + a.InUse, x.Peak + a.Peak}
		counts[a.Library]++
	}
	for _, library := range slices.Sorted(maps.Keys(sums)) {
		x, who := sums[library], library+"'s arena has "
		if counts[library] > 1 {
			who = fmt.Sprintf("%s's %d arenas have ", library, counts[library])
		}
		list = append(list, fmt.Sprintf("%s%s from the driver: %s in use, %s idle. At most %s was in use so far.",
			who, format.Bytes(x.Bytes), format.Bytes(x.InUse), format.Bytes(x.Bytes-x.InUse), format.Bytes(x.Peak)))
	}
	return list
}

// fromMoment returns "2.0s before this moment" or "after" it.
func fromMoment(read, moment uint64) string {
	side := "after"
	if read < moment {
		side = "before"
	}
	return format.Span(distance(read, moment)) + " " + side + " this moment"
}

// note returns what a server reported, of a KV cache of so many bytes.
func (u *Use) note(bytes int64) string {
	text := fmt.Sprintf("%s reports that %.1f%% of its KV cache is used", u.Engine, 100*u.Used)
	if bytes > 0 {
		text = fmt.Sprintf("%s reports that %.1f%% of its KV cache is used: %s of %s", u.Engine, 100*u.Used, format.Bytes(uint64(u.Used*float64(bytes))), format.Bytes(uint64(bytes)))
	}
	from := fmt.Sprintf(" (%s on port %d, process %d", u.Metric, u.Port, u.By)
	if u.Series > 1 {
		from += fmt.Sprintf(", mean of %d engines", u.Series)
	}
	if bytes <= 0 {
		from += "; no tensor is known to be one"
	}
	return text + from + ")."
}

func (b *Balance) hasTensors() bool {
	return slices.ContainsFunc(b.Rows, func(r Row) bool {
		return r.Library == "" && slices.Index(Kinds, r.Kind) <= slices.Index(Kinds, Tensors)
	})
}

func distance(a, b uint64) uint64 { return max(a, b) - min(a, b) }

// Bar draws the rows of a balance in so many columns, each by the letter of its kind:
// "WWWGGOOOOAAAAAAcc". Rows of less than half a column have none.
func (b *Balance) Bar(columns int) string {
	var sum int64
	for i := range b.Rows {
		sum += max(b.Rows[i].Bytes, 0)
	}
	if sum == 0 || columns < 1 {
		return ""
	}
	var bar strings.Builder
	var done int64
	for i := range b.Rows {
		r := &b.Rows[i]
		from := float64(done) / float64(sum)
		done += max(r.Bytes, 0)
		to := float64(done) / float64(sum)
		n := int(to*float64(columns)+0.5) - int(from*float64(columns)+0.5)
		bar.WriteString(strings.Repeat(string(r.Kind.Letter()), n))
	}
	return bar.String()
}

// BySize returns the indexes of balances, the largest first.
func BySize(list []Balance) []int {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(list[b].Bytes, list[a].Bytes) })
	return order
}

// Divided reports whether a balance shows more than planes do: a purpose of tensors, a library.
func (b *Balance) Divided() bool {
	return slices.ContainsFunc(b.Rows, func(r Row) bool {
		return r.Kind == Library || r.Kind == Graphs || r.Kind != Tensors && slices.Index(Kinds, r.Kind) < slices.Index(Kinds, Tensors)
	})
}
