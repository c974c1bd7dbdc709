// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/imported"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/report/ranks"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// sites writes the largest sites, in one line each.
func (p *brief) sites() {
	older := ""
	if p.o.Older > 0 {
		older = " older than " + p.o.Older.String()
	}
	p.line(plain, 0, "")
	sum := report.Sum(p.s, p.gpu)
	if sum.Own.Sites == 0 {
		none := "No GPU memory allocated since the attach is live"
		if older != "" {
			none = "No live GPU memory" + older
		}
		p.text(bold, 0, format.Join(none, p.notes.mark(report.AtTotals), p.notes.mark(report.AtStacks)))
	} else {
		leakHead(p.page, "Live GPU memory"+older, &sum, p.notes)
	}
	if list := p.notCounted(&sum); len(list) > 0 {
		p.text(plain, 0, "not counted: "+strings.Join(list, ", "))
	}
	for _, text := range imported.Remarks(p.s) {
		p.paragraph("", text)
	}
	t := p.siteTable()
	t.write(p.rows[0], p.most)
	for i, x := range []struct {
		name string
		list []ledger.Site
	}{{"Live managed memory", p.managed}, {"Live host memory", p.host}} {
		if len(x.list) > 0 {
			sum := report.Sum(p.s, x.list)
			p.line(plain, 0, "")
			leakHead(p.page, x.name+older, &sum, p.notes)
			t.write(p.rows[i+1], p.limit(briefApart))
		}
	}
}

// notCounted returns what is live and in no sum of sites.
func (p *brief) notCounted(sum *report.Sums) (list []string) {
	if sum.Imported.Sites > 0 {
		list = append(list, sum.Imported.Text()+" of imported memory")
	}
	if ageless := report.Ageless(p.s, p.o); ageless.Sites > 0 {
		list = append(list, ageless.Text()+" of unknown age")
	}
	if cache := report.Sum(p.s, p.s.Sites).Cache; cache.Bytes > 0 {
		list = append(list, format.Bytes(cache.Bytes)+" of PyTorch's cache")
	}
	older, untraced := uint64(0), uint64(0)
	for i := range p.s.Tensors {
		if t := &p.s.Tensors[i]; t.Device >= 0 && p.s.Processes[t.Process].End == 0 {
			older += report.Minus(t.Older, t.OlderAsleep+t.OlderMoved+t.Untraced)
			untraced += t.Untraced
		}
	}
	if untraced > 0 {
		list = append(list, format.Bytes(untraced)+" of tensors not traced")
	}
	if older > 0 {
		list = append(list, format.Bytes(older)+" of tensors before the attach")
	}
	if asleep := report.AsleepBytes(p.s); asleep > 0 {
		list = append(list, format.Bytes(asleep)+" of tensors that are asleep")
	}
	return list
}

// siteTable writes sites in columns: live bytes, count, growth or age, verdict, process and device
// if they differ, line.
type siteTable struct {
	*brief
	pids    bool   // more than one process
	several bool   // a row of several processes
	devices bool   // more than one device of a process
	places  int    // columns for both
	begun   bool   // the header is written
	half    uint64 // ns: growth is over so long; 0: it differs
}

// siteKey identifies a site in a snapshot.
type siteKey struct {
	process int
	stack   uint64
	api     string
	kind    ledger.Kind
	device  int32
	segment bool
}

func siteKeyOf(x *ledger.Site) siteKey {
	return siteKey{x.Process, x.Stack, x.API, x.Kind, x.Device, x.Segment}
}

// siteTable chooses the columns for the sites that are listed.
func (p *brief) siteTable() *siteTable {
	t := &siteTable{brief: p}
	listed := slices.Clone(p.rows[0][:min(len(p.rows[0]), p.most)])
	for _, rows := range p.rows[1:] {
		listed = append(listed, rows[:min(len(rows), p.limit(briefApart))]...)
	}
	process, device := map[int]bool{}, map[[2]int]bool{}
	t.half = t.s.SessionGrowthSpan()
	for i := range listed {
		x := &listed[i].Site
		for k, of := range listed[i].Of() {
			if half := t.s.GrowthSpan(of); i == 0 && k == 0 {
				t.half = half
			} else if half != t.half {
				t.half = 0
			}
			process[of] = true
		}
		t.several = t.several || listed[i].Processes != nil
		if !x.Kind.OnHost() && x.Device >= 0 {
			device[[2]int{x.Process, int(x.Device)}] = true
		}
	}
	t.pids, t.devices = len(process) > 1, len(device) > len(process)
	for i := range listed {
		if n := format.Width(t.place(&listed[i])); n > 0 {
			t.places = max(t.places, n+2)
		}
	}
	if t.pids {
		t.places = max(t.places, len(t.placeName())+2)
	}
	return t
}

// placeName heads the column of place.
func (t *siteTable) placeName() string {
	switch {
	case t.several:
		return "process"
	case t.pids:
		return "pid"
	}
	return ""
}

// place returns "4242 cuda:1", as far as it is not the same for all; next to rows of several
// processes, "8 ranks", the rank of others, or their pid.
func (t *siteTable) place(x *lines.Row) string {
	var parts []string
	rank := t.jobs.Ranks([]int{x.Process})
	switch {
	case x.Processes != nil:
		return severalText(t.jobs, x.Processes)
	case t.several && rank != "":
		parts = append(parts, rank)
	case t.pids:
		parts = append(parts, fmt.Sprint(t.s.Processes[x.Process].PID))
	}
	if t.devices {
		parts = append(parts, format.Device(x.Device, x.Kind))
	}
	return strings.Join(parts, " ")
}

const liveColumns, countColumns, changeColumns, classColumns = 9, 8, 11, 9

func (t *siteTable) row(rank, live, count, change, class, place string) string {
	return format.Pad(rank, siteIndent) + format.Pad(live, liveColumns) + format.Pad(count, -countColumns) + format.Pad(change, -changeColumns) + "  " +
		format.Pad(class, classColumns) + format.Pad(place, t.places)
}

// header names the time in which sites grew, or says that ages follow.
func (t *siteTable) header() string {
	return t.row("", "live", "count", t.changeName(), "verdict", t.placeName())
}

func (t *siteTable) changeName() string {
	if t.o.Older > 0 {
		return "oldest"
	}
	if t.half < leastGrowth {
		return "growth" // in the second half of each process's time, or in a moment
	}
	const fits = changeColumns - 1 - len("last ")
	span := format.Span(t.half)
	if len(span) > fits { // "38m12s", "10h05m"
		span = span[:len("38m")]
	}
	return "last " + span
}

// change returns "+36.8 MiB", the growth in the second half of the session or of a process that
// began in it, or the age with Options.Older.
func (t *siteTable) change(x *ledger.Site) string {
	if t.o.Older == 0 {
		if x.Growth == 0 {
			return "0 B"
		}
		return format.Difference(x.Growth)
	}
	if ns, known := report.Age(t.s, x); known {
		return format.Span(ns)
	}
	return "unknown"
}

// narrow reports whether sites surely have no line of code beside their figures.
func (p *brief) narrow() bool {
	return p.width < siteIndent+liveColumns+countColumns+changeColumns+classColumns+2+narrowFrame
}

func (t *siteTable) write(list []lines.Row, most int) {
	header := t.header()
	narrow := t.narrow() || t.width-format.Width(header) < narrowFrame
	if len(list) > 0 && !narrow && !t.begun {
		t.begun = true
		t.line(dim, 0, strings.TrimRight(header, " "))
	}
	if len(list) == most+1 && t.o.Top == 0 { // a line either way
		most++
	}
	for i := range list[:min(len(list), most)] {
		t.site(i+1, &list[i], narrow)
	}
	if len(list) > most {
		t.text(plain, siteIndent, moreText(t.s, list[most:])+" (-T shows more)")
	}
}

func (t *siteTable) site(rank int, r *lines.Row, narrow bool) {
	x, f := &r.Site, r.Frame
	live := format.Bytes(report.Awake(x))
	if x.LiveBytes == 0 {
		live = "unknown"
	}
	count, change, class := humanize.Comma(int64(x.LiveObjects)), t.change(x), t.classes[siteKeyOf(&r.Sites[0])]
	if narrow {
		if name := t.changeName(); strings.HasPrefix(name, "last ") {
			change += " in the " + name
		} else {
			change = name + " " + change
		}
		f.Function = frames.ShortName(&f)
		t.headLine(bold, format.Pad(fmt.Sprintf("%d.", rank), siteIndent)+format.Pad(live, liveColumns), f)
		list := []string{format.Count(x.LiveObjects, format.Noun(x.Kind)), change, class, t.place(r)}
		if name := t.objects[siteKeyOf(&r.Sites[0])]; name != "" {
			list = append(list, name)
		}
		list = append(list, aboutRow(r)...)
		t.list(dim, siteIndent, ", ", list...)
		t.spread(r)
		return
	}
	text := t.row(fmt.Sprintf("%d.", rank), live, count, change, class, t.place(r))
	if !report.InSums(x.Kind) {
		text += "(" + format.Kind(x.Kind) + ") "
	} else if name := t.objects[siteKeyOf(&r.Sites[0])]; name != "" {
		text += "(" + name + ") "
	}
	if len(r.Marks) > 0 {
		text += incomplete
	}
	t.line(plain, 0, t.withAbout(text+briefFrame(f, max(t.width-format.Width(text), 1)), aboutRow(r)...))
	t.spread(r)
}

// failures writes the allocations that failed, in one line each.
func (p *brief) failures() {
	list := p.s.Failures
	if len(list) == 0 {
		return
	}
	p.line(plain, 0, "")
	for i := range list[:min(len(list), p.limit(briefFailures))] {
		f := &list[i]
		stack := frames.Visible(p.st, f.Stack, f.API)
		p.headLine(red, fmt.Sprintf("%s× %s (last: %s)", humanize.Comma(int64(f.Count)), format.Result(f.Result), format.Bytes(f.LastBytes)), stack[frames.Headline(stack)])
	}
	if more := len(list) - p.limit(briefFailures); more > 0 {
		p.text(plain, siteIndent, format.Count(uint64(more), "more site")+" of failed allocations (with -v)")
	}
}

func (p *brief) growth(sign string, v *ranks.Verdict) {
	if !v.Several() {
		p.clauses(sign, evidenceText(p.s, &v.Group, p.o), p.evidence)
		return
	}
	p.paragraph(sign, p.jobs.Growth(v, p.judged.Groups, stepsIn(p.s, p.o)))
	p.clauses(sign, inFirst(p.jobs, v)+untrusted.Clean(v.Evidence), p.evidence)
}

func (p *brief) keptText(v *ranks.Verdict) string {
	g := &p.judged.Groups[v.Groups[0]]
	return report.KeptText(groupHolders(p.s, p.kept[g.Process], g), g.LiveBytes)
}

func (p *brief) tag(g *ranks.Verdict, growing []ranks.Verdict) string {
	if g.Several() {
		return severalText(p.jobs, g.Processes)
	}
	var process, device string
	for i := range growing {
		x := &growing[i]
		if x.Line != g.Line {
			continue
		}
		if x.Process != g.Process {
			process = fmt.Sprintf("[%d]", p.s.Processes[g.Process].PID)
		}
		if x.Device != g.Device {
			device = format.Device(g.Device, g.Kind)
		}
	}
	return format.Join(process, device)
}

func (p *brief) amount(v *ranks.Verdict) []string {
	list := []string{amountText(p.s, &v.Group), v.Object.String()}
	if v.Several() {
		return append(list, firstOf(p.s, v.Process, len(v.Processes)), gpusOf(p.s, sitesOf(p.s, v)))
	}
	where := whereText(v.Device, v.Kind)
	if v.Kind == ledger.Tensor {
		where = format.Device(v.Device, v.Kind)
	}
	return append(list, format.Process(&p.s.Processes[v.Process]), where, p.jobs.Text(v.Processes))
}

func (t *siteTable) spread(r *lines.Row) {
	if most := mostText(t.jobs, r); most != "" {
		t.text(dim, siteIndent, ranks.Between(r.Bytes())+" each, "+most)
	}
}
