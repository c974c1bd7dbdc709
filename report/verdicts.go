// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/balance"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/pools"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Judgement is what package verdict finds in a snapshot, in words.
type Judgement struct {
	GPUs   []GPUBalance    // what each GPU is used for and what of it grows, those that grow first
	Groups []verdict.Group // lines of code, the worst first
	Advice []string        // sentences on what to do, with the evidence; clean of control characters
	Brief  []string        // Advice without the evidence

	paused   bool   // a budget paused the tracing of tensors
	short    bool   // the session was too short to judge growth
	failed   uint64 // when CUDA ran out of memory last, in ns of the session; 0: never
	headOf   []int  // by site of the snapshot
	heads    map[ledger.SiteID]int
	evidence []string // by group
}

// Judge judges each line of code that allocates.
func Judge(s *ledger.Snapshot, st callstack.Stacks) *Judgement {
	list := verdict.Judge(s, st)
	j := &Judgement{Groups: verdict.JudgeLines(s, list), paused: paused(s), failed: ranOut(s), short: verdict.TooShort(s) > 0, headOf: make([]int, len(list)), heads: map[ledger.SiteID]int{}}
	for i := range list {
		j.headOf[i] = list[i].Head
		j.heads[s.IDOf(&s.Sites[i])] = list[i].Head
	}
	j.GPUs = balancesOf(s, st, j.Groups)
	full := map[string]bool{} // GPUs whose sentence has when they are full
	for i := range j.GPUs {
		if b := &j.GPUs[i]; b.GPU != nil && b.Full > 0 {
			full[b.GPU.UUID] = true
		}
	}
	for i := range j.Groups {
		g := &j.Groups[i]
		j.evidence = append(j.evidence, evidenceText(g, full[GPUUUID(s, g.Process, g.Device, g.Kind)]))
	}
	said := sayOnce(verdict.Advise(s, st, list))
	for i := range said {
		j.Advice = append(j.Advice, adviceText(&said[i]))
		said[i].Evidence = ""
		j.Brief = append(j.Brief, adviceText(&said[i]))
	}
	return j
}

// mostEvidence is of how many processes or GPUs the same advice has its evidence.
const mostEvidence = 2

// sayOnce joins advice of the same sentence: the bytes of all, and the evidence of the first, as
// "a; b; and 7 more like these" for the ranks of a job.
func sayOnce(list []verdict.Advice) (said []verdict.Advice) {
	var times []int
	for _, a := range list {
		n := slices.IndexFunc(said, func(o verdict.Advice) bool { return o.Text == a.Text && o.Line == a.Line })
		if n < 0 {
			said, times = append(said, a), append(times, 1)
			continue
		}
		said[n].Bytes += a.Bytes
		if times[n]++; times[n] <= mostEvidence && a.Evidence != "" {
			said[n].Evidence += "; " + a.Evidence
		}
	}
	for i := range said {
		if more := times[i] - mostEvidence; more > 0 && said[i].Evidence != "" {
			said[i].Evidence += fmt.Sprintf("; and %d more like these", more)
		}
	}
	return said
}

// Headline returns the stack of a site as reports show it, and the index of its headline: see
// verdict.JudgeLines. Without a judgement of the site (nil) it is that of frames.Headline.
func (j *Judgement) Headline(s *ledger.Snapshot, st callstack.Stacks, x *ledger.Site) (stack []callstack.Frame, at int) {
	stack = frames.Visible(st, x.Stack, x.API)
	if j != nil {
		if at, ok := j.heads[s.IDOf(x)]; ok && at < len(stack) {
			return stack, at
		}
	}
	return stack, frames.Headline(stack)
}

// Leaking counts the lines that leak.
func (j *Judgement) Leaking() (n int) {
	for i := range j.Groups {
		if j.Groups[i].Class == verdict.Leaking {
			n++
		}
	}
	return n
}

// SiteVerdict is the verdict on the line of code of one site. It is empty if the site has none.
type SiteVerdict struct {
	Class   string // leaking, growing, cache, steady, one-off
	Library string // what one of NVIDIA's libraries took for itself: "cuBLAS workspace"; or ""
	Text    string // the evidence, and the time until the GPU is full; one line, clean of control characters
	Head    int    // the index of its headline in the stack, see Judgement.Headline
}

// Sites returns the verdict on each site, in the order of Snapshot.Sites.
func (j *Judgement) Sites() []SiteVerdict {
	list := make([]SiteVerdict, len(j.headOf))
	for i := range j.Groups {
		g := &j.Groups[i]
		for _, site := range g.Sites {
			list[site] = SiteVerdict{Class: g.Class.String(), Text: j.evidence[i], Head: j.headOf[site]}
			if g.Object.OfLibrary() {
				list[site].Library = g.Object.String()
			}
		}
	}
	return list
}

// Evidence returns that of a group, by its index: "… of 20.0 MiB/s; gradient; the GPU is full in 1h
// at this rate". A GPU whose own sentence has when it is full is not named again: both are
// estimates, of the GPU's usage and of what leaks, and differ.
func (j *Judgement) Evidence(group int) string { return j.evidence[group] }

func evidenceText(g *verdict.Group, full bool) string {
	text := untrusted.Clean(g.Evidence)
	if what := g.Object.String(); what != "" {
		text += "; " + what
	}
	if g.UntilFull > 0 && !full {
		text += "; the GPU is full in " + format.Span(uint64(g.UntilFull)) + " at this rate"
	}
	return text
}

// adviceText returns "train.py:73 Job.step: 471 MiB: keep loss.item() … (evidence)".
func adviceText(a *verdict.Advice) string {
	text := a.Text
	if bytes := format.Bytes(a.Bytes); a.Bytes > 0 && !strings.HasPrefix(text, bytes) {
		text = bytes + ": " + text
	}
	if a.Line.Function != "" {
		front, back := frames.Parts(&a.Line)
		text = format.Join(front, back) + ": " + text
	}
	if a.Evidence != "" {
		text += " (" + a.Evidence + ")"
	}
	return untrusted.Clean(text)
}

// GPUBalance is what one GPU is used for and what of it grows, in words: one line each, clean of
// control characters.
type GPUBalance struct {
	balance.Balance
	Name string // "GPU 0", "cuda:0 of python3 [42]"
	// "4.02 GiB of 8.00 GiB, full in 12s: PyTorch cache 3.39 GiB (+3.39 GiB in 10s), before attach
	// 310 MiB, tensors 64.0 MiB"
	Used   string
	Grows  []string // a sentence on each plane that grows, and on driver objects that are made and kept
	Beyond []string // those of Grows that no line of code explains
}

// PlaneText returns how sentences call a plane of a balance.
func PlaneText(p balance.Plane) string {
	switch p {
	case balance.Tensors:
		return PlaneName(PlaneTensor)
	case balance.Cache:
		return PlaneName(PlaneCache)
	case balance.Driver:
		return PlaneName(PlaneDriver)
	case balance.Before:
		return PlaneName(PlaneBefore)
	case balance.Unexplained:
		return PlaneUnexplained
	}
	return "other processes"
}

// PlaneKey returns the name of a plane of a balance in JSON and labels.
func PlaneKey(p balance.Plane) string {
	return [...]string{PlaneTensor, PlaneCache, PlaneDriver, PlaneBefore, PlaneUnexplained, "others"}[p]
}

func balancesOf(s *ledger.Snapshot, st callstack.Stacks, lines []verdict.Group) (list []GPUBalance) {
	for _, b := range balance.Of(s, lines) {
		x := GPUBalance{Balance: b, Name: gpuName(s, &b), Used: usedText(s, st, &b)}
		x.say(s, st)
		list = append(list, x)
	}
	return list
}

func gpuName(s *ledger.Snapshot, b *balance.Balance) string {
	switch {
	case b.GPU == nil:
		return format.Device(b.Device, ledger.Device) + " of " + format.Process(&s.Processes[b.Process])
	case b.GPU.Parent != "":
		return fmt.Sprintf("MIG instance %s of GPU %d", format.ShortUUID(b.GPU.UUID), b.GPU.Index)
	}
	return fmt.Sprintf("GPU %d", b.GPU.Index)
}

func usedText(s *ledger.Snapshot, st callstack.Stacks, b *balance.Balance) string {
	rows := slices.Clone(b.Rows)
	grows := func(r *balance.Row) int {
		if r.Grows() {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(rows, func(x, y balance.Row) int { // what grows first: a narrow line is cut
		return cmp.Or(grows(&y)-grows(&x), cmp.Compare(y.Bytes, x.Bytes))
	})
	var parts []string
	for i := range rows {
		if r := &rows[i]; r.Bytes > 0 {
			text := PlaneText(r.Plane)
			if r.Plane == balance.Before && !slices.ContainsFunc(s.Processes, func(p ledger.Process) bool { return p.End == 0 && p.Begin <= s.Begin }) {
				text = contextName
			}
			text += " " + format.Bytes(r.Bytes)
			if graphs := min(graphsOf(s, st, b), r.Bytes); r.Plane == balance.Cache && graphs > 0 {
				text += ", of it CUDA graphs " + format.Bytes(graphs)
			}
			if r.Grows() {
				text += " (+" + format.Bytes(r.Grown) + " in " + format.Span(uint64(r.Over))
				if r.Paused() {
					text += ", then nothing for " + format.Span(uint64(r.Idle))
				}
				text += ")"
			}
			parts = append(parts, text)
		}
	}
	text := format.Bytes(b.Used)
	if b.GPU != nil && b.GPU.Total > 0 {
		text += " of " + format.Bytes(b.GPU.Total)
	}
	if b.Full > 0 && b.Full < longestFull {
		text += ", full in " + format.Span(uint64(b.Full))
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

// say sets the sentences: "PyTorch cache grows: 3.39 GiB in 10s (20.3 GiB/min), 64.0 MiB of 3.45
// GiB reserved are in use, at train.py:17 cycle" and the like.
func (b *GPUBalance) say(s *ledger.Snapshot, st callstack.Stacks) {
	add := func(text string, explained bool) {
		text = untrusted.Clean(text)
		if b.Grows = append(b.Grows, text); !explained {
			b.Beyond = append(b.Beyond, text)
		}
	}
	for i := range b.Rows {
		r := &b.Rows[i]
		if !r.Grows() {
			continue
		}
		text := fmt.Sprintf("%s %s: %s in %s (%s/min)", PlaneText(r.Plane), growWord(r), format.Bytes(r.Grown), format.Span(uint64(r.Over)), format.Bytes(uint64(r.Rate*60)))
		if r.Reserved > 0 {
			text += fmt.Sprintf(", %s of %s reserved are in use", format.Bytes(r.InUse), format.Bytes(r.Reserved))
		}
		if r.Pools > 0 {
			text += ", " + poolsHold(r)
		}
		if r.Site >= 0 {
			x := &s.Sites[r.Site]
			text += ", at " + LineText(st, x.Stack, x.API)
		}
		if r.Process >= 0 && len(s.Processes) > 1 {
			text += ", most in " + format.Process(&s.Processes[r.Process])
		}
		if r.Class < verdict.Leaking && r.Needs > 0 {
			text += "; may be a warm-up: " + format.Span(uint64(r.Needs)) + " more decide"
		}
		unknown := r.Plane == balance.Tensors && r.Class < verdict.Leaking && paused(s)
		if unknown {
			text += "; tensors were not traced all the time, --budget off finds the line"
		}
		add(text, (r.Plane == balance.Tensors || r.Plane == balance.Driver) && !unknown && r.Pools == 0)
	}
	if len(b.Objects) > 0 {
		add("made since the attach and kept: "+objectList(st, b.Objects, func(o *ledger.Object) uint64 { return o.Live - o.Before }), false)
	}
}

// poolsHold returns "255 memory pools hold 7.97 GiB unused: destroy …".
func poolsHold(r *balance.Row) string {
	noun, hold := "a memory pool", " holds "
	if r.Pools > 1 {
		noun, hold = format.Count(uint64(r.Pools), "memory pool"), " hold "
	}
	return noun + hold + format.Bytes(r.Pooled) + " unused: destroy pools that are done (cudaMemPoolDestroy), or trim them (cudaMemPoolTrimTo)"
}

// paused reports whether a budget paused the tracing of tensors of a process.
func paused(s *ledger.Snapshot) bool {
	return slices.ContainsFunc(s.Tensors, func(t ledger.Tensors) bool { return len(t.Phases) > 0 })
}

// longestFull bounds a prediction: nothing grows at the same rate for so long.
const longestFull = 365 * 24 * time.Hour

// growWord returns the verb of a plane.
func growWord(r *balance.Row) string {
	if r.Plane == balance.Tensors || r.Plane == balance.Others {
		return "grow"
	}
	return "grows"
}

// TooShortText returns "3.2s are too short to judge growth: 15s decide", "" if the session was long
// enough.
func TooShortText(s *ledger.Snapshot) string {
	needs := verdict.TooShort(s)
	if needs == 0 {
		return ""
	}
	if s.End-s.Begin >= uint64(needs) { // as where each process lives for a moment
		return "the running processes are too young to judge growth: " + format.Span(uint64(needs)) + " decide"
	}
	return format.Span(s.End-s.Begin) + " are too short to judge growth: " + format.Span(uint64(needs)) + " decide"
}

// outOfMemory is the result of CUDA's driver and runtime for an allocation without room.
const outOfMemory = 2

// ranOut returns when CUDA last refused memory on a GPU to a process with PyTorch, which gives back
// its cache then, in ns since the begin of the session; 0: never.
func ranOut(s *ledger.Snapshot) (at uint64) {
	reports := ReportTensors(s)
	for i := range s.Failures {
		if f := &s.Failures[i]; f.Result == outOfMemory && f.Device != ledger.CPUDevice && reports[f.Process] {
			at = max(at, Minus(f.LastTime, s.Begin))
		}
	}
	return at
}

// NoLineText returns what is said where no line of code grows: "No line grows", what grows all the
// same, or that it is too early to know.
func (j *Judgement) NoLineText() string {
	var planes []string
	for i := range j.GPUs {
		for k := range j.GPUs[i].Rows {
			if r := &j.GPUs[i].Rows[k]; r.Grows() && !slices.Contains(planes, PlaneText(r.Plane)) {
				planes = append(planes, PlaneText(r.Plane))
			}
		}
	}
	switch {
	case j.paused && slices.Contains(planes, PlaneText(balance.Tensors)):
		return "No line is known to grow, but a GPU fills (" + strings.Join(planes, ", ") + ")"
	case len(planes) > 0:
		return "No line of code grows, but a GPU fills by other means (" + strings.Join(planes, ", ") + ")"
	case slices.ContainsFunc(j.GPUs, func(b GPUBalance) bool { return len(b.Objects) > 0 }):
		return "No line of code grows in what it allocates, but driver objects are made and kept"
	}
	if j.short {
		return "Too early for a verdict on growth"
	}
	if len(j.Groups) > 0 && !slices.ContainsFunc(j.Groups, func(g verdict.Group) bool { return g.Class != verdict.Unknown }) {
		return "No line is known to grow"
	}
	if j.failed > 0 {
		return "No line grows since CUDA ran out of memory at " + format.Span(j.failed) + ", when PyTorch gave back its cache"
	}
	return "No line grows"
}

// BalanceTexts returns what each GPU is used for, and below it what of that grows, indented, a line
// each: of all GPUs on which something grows, and of at most most in all.
func (j *Judgement) BalanceTexts(most int) (list []string) {
	for i := range j.GPUs {
		b := &j.GPUs[i]
		if i >= most && len(b.Grows) == 0 {
			list = append(list, format.Count(uint64(len(j.GPUs)-i), "more GPU")+", on which nothing grows")
			break
		}
		list = append(list, untrusted.Clean(b.Name+": "+b.Used))
		for _, text := range b.Grows {
			list = append(list, "  "+text)
		}
	}
	return list
}

// graphsOf returns the free bytes in pools of CUDA graphs on a GPU, which explain shows as a row of
// their own.
func graphsOf(s *ledger.Snapshot, st callstack.Stacks, b *balance.Balance) (bytes uint64) {
	for i := range s.Caches {
		c := &s.Caches[i]
		n := s.BalanceOf(c.Process, c.Index)
		if n >= 0 && (b.GPU == nil || s.Balances[n].UUID != b.GPU.UUID) || n < 0 && (b.GPU != nil || c.Process != b.Process || c.Index != b.Device) {
			continue
		}
		of := pools.Of(c, st)
		for k := range c.Arenas {
			if of.OfGraphs(c.Arenas[k].Pool) {
				bytes += c.Arenas[k].Free
			}
		}
	}
	return bytes
}
