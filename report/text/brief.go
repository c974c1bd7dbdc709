// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/report/ranks"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Limits of the brief form. Options.Top replaces those of verdicts and of sites.
const (
	briefRows     = 24 // of a screen: with more, the brief form becomes shorter, see shorten
	briefVerdicts = 3  // with their evidence and their stack
	briefOthers   = 3  // further lines that grow, in one line each
	mostSites     = 10
	leastSites    = 3
	briefApart    = 2 // sites of managed and of host memory
	briefAdvice   = 2
	briefFailures = 2
	briefGPUs     = 2 // GPUs with their balance
	briefSteps    = 1 // processes with their steps
	briefLines    = 2 // lines of an evidence, of a holder
)

// brief is the page of WriteLeaksBrief.
type brief struct {
	*page
	s     *ledger.Snapshot
	st    callstack.Stacks
	o     report.Options
	notes *notes
	kept  []*report.Kept

	judged             *report.Judgement
	jobs               *ranks.Jobs
	verdicts           []ranks.Verdict
	gpu, managed, host []ledger.Site
	rows               [3][]lines.Row     // of gpu, managed, host
	classes            map[siteKey]string // verdicts on sites
	objects            map[siteKey]string // what libraries took for themselves
	most               int                // sites to list
	full               int                // lines that grow with their evidence
	evidence, used     int                // lines of it, and of what a GPU is used for
}

func (p *brief) limit(usual int) int {
	if p.o.Top > 0 {
		return p.o.Top
	}
	return usual
}

// WriteLeaksBrief writes what WriteLeaks does, on one screen where it can: the lines that grow,
// with the user's own frames of their stacks, the largest sites in one line each, and the notes
// that change these figures.
func WriteLeaksBrief(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, o report.Options, screen Screen) error {
	p := brief{s: s, st: st, o: o, kept: report.KeptBy(s), judged: report.Judge(s, st), classes: map[siteKey]string{}, objects: map[siteKey]string{}}
	p.gpu, p.managed, p.host = report.DivideLeaks(report.Leaks(s, o))
	for i, v := range p.judged.Sites() {
		p.classes[siteKeyOf(&s.Sites[i])] = v.Class
		p.objects[siteKeyOf(&s.Sites[i])] = v.Library
	}
	book := lines.New(s, st, p.judged)
	for i, list := range [][]ledger.Site{p.gpu, p.managed, p.host} {
		p.rows[i] = book.Together(book.Rows(list))
	}
	p.jobs, p.verdicts = book.Jobs, book.Jobs.Verdicts(p.judged.Groups)
	doubts := report.Doubts(s)
	p.most, p.full, p.evidence, p.used = min(p.limit(mostSites), len(p.rows[0])), p.limit(briefVerdicts), briefLines, briefLines
	for {
		p.page = newPage(screen)
		p.write(doubts)
		if more := len(p.lines) - briefRows; more <= 0 || !p.shorten(more) {
			return p.writeTo(w)
		}
	}
}

// shorten chooses a form for the next try that may be shorter by so many rows, and reports whether
// there is one: fewer sites, fewer lines that grow and may not leak with their evidence, less of
// what GPUs are used for, less evidence.
func (p *brief) shorten(rows int) bool {
	switch {
	case p.o.Top == 0 && p.most > leastSites:
		if p.narrow() {
			rows = (rows + 2) / 3 // a site has three
		}
		p.most = max(p.most-rows, leastSites)
	case p.o.Top == 0 && p.full > max(countClass(p.verdicts, verdict.Leaking), 1):
		p.full--
	case p.used > 1:
		p.used--
	case p.evidence > 1:
		p.evidence--
	default:
		return false
	}
	return true
}

func (p *brief) write(doubts []report.Doubt) {
	list, more := briefDoubts(doubts)
	p.notes = &notes{doubts: list}
	title(p.page, p.s, p.notes)
	p.balances(p.judged)
	p.leakSteps(p.s, p.o, briefSteps)
	p.judgements(p.judged)
	p.sites()
	p.failures()
	footnotes(p.page, p.notes)
	if more == 0 {
		return
	}
	if len(list) == 0 {
		p.line(plain, 0, "")
	}
	p.text(dim, 0, format.Count(uint64(more), "more note")+" (with -v)")
}

// Doubts of the brief form: all about totals, and so many others.
const briefStackDoubts, briefWarnings = 2, 2

// briefDoubts returns the doubts about figures of the brief form, and the number of the others.
func briefDoubts(all []report.Doubt) (list []report.Doubt, more int) {
	left := map[report.Figure]int{report.AtTotals: len(all), report.AtStacks: briefStackDoubts, report.AtTitle: briefWarnings}
	for _, d := range all {
		if left[d.At] == 0 {
			more++
			continue
		}
		left[d.At]--
		list = append(list, d)
	}
	return list, more
}

// balances writes what each GPU is used for, and what of that grows.
func (p *brief) balances(j *report.Judgement) {
	if len(j.GPUs) > 0 {
		p.line(plain, 0, "")
	}
	shown := min(len(j.GPUs), p.limit(briefGPUs))
	for i := range j.GPUs[:shown] {
		b := &j.GPUs[i]
		p.shortened("", format.Words(b.Name+": "+b.Used), p.used, wholeClause)
		for _, text := range b.Beyond {
			p.shortened("  + ", format.Words(text), briefLines, anyWord)
		}
	}
	if more := len(j.GPUs) - shown; more > 0 {
		p.text(plain, 2, format.Count(uint64(more), "more GPU")+" (with -v)")
	}
}

// judgements writes the lines that grow, the worst first, and what to do.
func (p *brief) judgements(j *report.Judgement) {
	if len(j.Groups) == 0 {
		return
	}
	if len(j.GPUs) == 0 {
		p.line(plain, 0, "")
	}
	growing, others := divideVerdicts(p.verdicts)
	p.verdictTitle(growing, others)
	if p.judged.Leaking() == 0 {
		p.paragraph("", report.TooShortText(p.s))
	}
	shown := min(len(growing), p.full)
	var last shownVerdict
	for i := range growing[:shown] {
		last = p.verdict(i+1, &growing[i], last)
	}
	p.otherVerdicts(growing, shown)
	for _, a := range j.Brief[:min(len(j.Brief), briefAdvice)] {
		p.shortened("→ ", format.Words(a), briefLines+1, anyWord)
	}
	if more := len(j.Brief) - briefAdvice; more > 0 {
		p.text(plain, 2, "further advice: "+fmt.Sprint(more)+" (with -v)")
	}
}

// otherVerdicts writes the lines that grow from a rank on, in one line each. With Options.Top they
// are counted alone.
func (p *brief) otherVerdicts(growing []ranks.Verdict, from int) {
	list, most := growing[from:], briefOthers
	if p.o.Top > 0 {
		most = 0
	}
	for i := range list[:min(len(list), most)] {
		g := &list[i]
		bytes, _ := heldBytes(p.s, &g.Group)
		rank := format.Pad(fmt.Sprintf("%d.", from+i+1), siteIndent)
		figure := rank + format.Pad(g.Class.String(), 8) + "  " + format.Pad(format.Bytes(bytes), 8)
		if tag := p.tag(g, growing); tag != "" {
			figure += "  " + tag
		}
		p.headLine(plain, figure, g.Line)
	}
	if more := len(list) - most; more > 0 {
		p.text(plain, siteIndent, format.Count(uint64(more), "more line")+" (-T shows more)")
	}
}

func (p *brief) verdictTitle(growing []ranks.Verdict, others map[verdict.Class]uint64) {
	style, text := bold, p.judged.NoLineText()
	switch leaking := countClass(growing, verdict.Leaking); {
	case leaking > 0:
		style, text = red, "Leaking: "+format.Count(uint64(leaking), "line")
		if more := len(growing) - leaking; more > 0 {
			text += fmt.Sprintf(", growing: %d", more)
		}
	case len(growing) > 0:
		text = "No line leaks for certain; growing: " + format.Count(uint64(len(growing)), "line")
	}
	if rest := classCounts(others); rest != "" && len(growing) > 0 {
		text += "; others: " + rest
	} else if rest != "" {
		text += ": " + rest
	}
	p.text(style, 0, text)
}

// lastPiece returns "…" for the words that lines leave out. If the first of them is a long name,
// such as that of a class, for which there is room only in part, it returns the end of the name:
// that tells names apart.
func lastPiece(list, lines []string, room int) string {
	const least, long = 12, 20
	n := len(format.Words(strings.Join(lines, " ")))
	if n >= len(list) || room < least || format.Width(list[n]) < long {
		return "…"
	}
	if n+1 < len(list) {
		return format.CutFront(list[n], room-2) + " …"
	}
	return format.CutFront(list[n], room)
}

// anyWord and wholeClause are places where shortened may cut. wholeClause is behind a figure, as in
// "PyTorch cache 4.56 GiB …" or "other CUDA 1.12 GiB (+1.00 GiB …", never "other …".
func anyWord(string, string) bool { return true }

func wholeClause(last, next string) bool {
	return strings.HasSuffix(last, ",") || strings.HasPrefix(next, "(") || strings.HasPrefix(last, "(+")
}

// shortened writes words like a paragraph, in at most so many lines, one more on a narrow screen.
// It cuts at a place that fits, if there is one in the last line.
func (p *brief) shortened(sign string, list []string, most int, place func(last, next string) bool) {
	if p.width < defaultWidth*3/4 {
		most++
	}
	indent := format.Width(sign)
	room := p.width - indent
	lines := broken(room, " ", list)
	if len(lines) > most {
		lines = lines[:most]
		last := format.Words(lines[most-1])
		for len(last) > 1 && format.Width(strings.Join(last, " "))+2 > room {
			last = last[:len(last)-1]
		}
		before := len(format.Words(strings.Join(lines[:most-1], " ")))
		for n := len(last); n > 0; n-- {
			if place(last[n-1], list[before+n]) {
				last = last[:n]
				break
			}
		}
		text := format.Cut(strings.TrimRight(strings.Join(last, " "), ",;"), room-2)
		lines[most-1] = text + " " + lastPiece(list, lines[:most], room-format.Width(text)-1)
	}
	for i, line := range lines {
		if i == 0 {
			p.line(plain, 0, sign+line)
		} else {
			p.line(plain, indent, line)
		}
	}
}

// clauses writes "+12.0 MiB/min over 8.0s, 383 survivors, up to 8.0s old" without the last clauses
// that do not fit into so many lines.
func (p *brief) clauses(sign, text string, most int) {
	list, room := strings.Split(text, ", "), p.width-format.Width(sign)
	if p.width < defaultWidth*3/4 {
		most++
	}
	for n := len(list); n > 0; n-- {
		if words := format.Words(strings.Join(list[:n], ", ")); n == 1 || len(broken(room, " ", words)) <= most {
			p.shortened(sign, words, most, anyWord)
			return
		}
	}
}

// shownVerdict is a line whose holder and callers are written; the lines of one kept graph share
// both.
type shownVerdict struct {
	rank    int // 0: none
	process int
	several int // how many processes
	device  int32
	callers string
	holder  string
}

// verdict writes a line that grows, with its evidence, holder and stack. It refers to a line before
// it that has the same, and returns the line to which the next may refer.
func (p *brief) verdict(rank int, g *ranks.Verdict, before shownVerdict) shownVerdict {
	style := plain
	if g.Class == verdict.Leaking {
		style = bold
	}
	p.headLine(style, format.Pad(fmt.Sprintf("%d.", rank), siteIndent)+format.Pad(g.Class.String(), 8), g.Line)
	sign := strings.Repeat(" ", siteIndent)
	p.growth(sign, g)

	x := &p.s.Sites[g.Sites[0]]
	stack, own := frames.Visible(p.st, x.Stack, x.API), g.Head
	now := shownVerdict{rank, g.Process, len(g.Processes), g.Device, callersOf(stack, own), p.keptText(g)}
	same := before.rank > 0 && before.process == now.process && before.several == now.several && before.device == now.device
	called, kept := before.rank > 0 && now.callers != "" && now.callers == before.callers, same && now.holder != "" && now.holder == before.holder
	amount := p.amount(g)
	if same {
		amount = amount[:2] // without the process and the device
	}
	p.list(plain, siteIndent, ", ", append(amount, asBefore(called, kept, before.rank))...)
	if now.holder != "" && !kept {
		p.shortened(sign, format.Words(inFirst(p.jobs, g)+now.holder), p.evidence, anyWord)
	}
	if ownLines(stack) > 1 && !called {
		p.folded(stack, own)
	}
	if called && (kept || now.holder == "") {
		return before
	}
	return now
}

// asBefore returns "same callers and holder as line 1".
func asBefore(called, kept bool, rank int) string {
	switch {
	case called && kept:
		return fmt.Sprintf("same callers and holder as line %d", rank)
	case called:
		return fmt.Sprintf("same callers as line %d", rank)
	case kept:
		return fmt.Sprintf("same holder as line %d", rank)
	}
	return ""
}
