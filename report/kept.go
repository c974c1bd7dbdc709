// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// NoHolder is the path of memory that no holder was found for.
const NoHolder = "no holder found"

// Kept is who keeps the memory of a process, as of its latest walk. All names are clean of control
// characters.
type Kept struct {
	Process int
	At      uint64 // when the walk was, ns since the session's begin
	Failure string // why the walk found nothing; "" if it did
	// The holders, largest first, and for each device NoHolder at the end: apart from what CUDA
	// gave out to them directly, their bytes add up to those of PyTorch's allocators.
	Lines    []HolderLine
	Grown    []GrownLine   // since the first walk, fastest first
	Passing  []GrownLine   // likewise, but what they keep comes and goes
	Unclear  []GrownLine   // likewise, but that may come and go: see UnclearText
	Walks    int           // that found holders
	Between  time.Duration // the first walk and the latest; 0: there was only one
	Problems []string      // what the walk could not read, and doubts about its figures

	walk *ledger.Walked
	held []HolderLine // by index in walk.Held
}

// KeptBy returns who keeps the memory of each process, by its index; nil without a walk.
func KeptBy(s *ledger.Snapshot) []*Kept {
	list := make([]*Kept, len(s.Processes))
	if len(s.Walks) == 0 {
		return list
	}
	for i := range list {
		if w := s.LatestWalk(i); w != nil {
			list[i] = newKept(s, w)
		}
	}
	return list
}

// MostKept returns those that found holders, the process with the most bytes first, and those that
// did not.
func MostKept(s *ledger.Snapshot) (found, failed []*Kept) {
	for _, k := range KeptBy(s) {
		switch {
		case k == nil:
		case k.Failure != "":
			failed = append(failed, k)
		default:
			found = append(found, k)
		}
	}
	slices.SortStableFunc(found, func(a, b *Kept) int {
		return cmp.Compare(SumHolders(b.Lines).Bytes, SumHolders(a.Lines).Bytes)
	})
	return found, failed
}

func newKept(s *ledger.Snapshot, w *ledger.Walked) *Kept {
	k := &Kept{Process: w.Process, At: Minus(w.Time, s.Begin), Failure: wordsFor(w.Failure, walkFailures), walk: w}
	if w.Failure != "" {
		return k
	}
	k.held = heldLines(w.Held)
	k.Lines = walkedLines(w)
	if first := s.FirstWalk(w.Process); first != nil && first.Time < w.Time {
		k.Between = time.Duration(w.Time - first.Time)
		var walks [][]HolderLine
		for i := range s.Walks {
			if x := &s.Walks[i]; x.Process == w.Process && x.Failure == "" && x.Time <= w.Time {
				walks = append(walks, walkedLines(x))
			}
		}
		k.Grown = grownLines(walks[0], k.Lines, k.Between)
		k.passing(s, walks)
	}
	k.Problems = k.problems(s)
	return k
}

// walkFailures are the words for ledger's reasons of walks that found nothing.
var walkFailures = map[string]string{
	ledger.WalkNoPython:  "no Python interpreter in the process",
	ledger.WalkNoTensors: "no PyTorch tensor in its Python",
	ledger.WalkNoTime:    "there was no time to read its memory",
	ledger.WalkUnended:   "its memory was not read in time",
	ledger.WalkCanceled:  "the session ended before its memory was read",
	ledger.WalkFreed:     "the process freed its memory, or ended, while it was read",
}

// walkedLines returns the lines of Kept.
func walkedLines(w *ledger.Walked) []HolderLine {
	list, rest := heldLines(w.Held), heldLines(w.Unheld())
	list = slices.DeleteFunc(list, func(l HolderLine) bool { return l.Bytes == 0 }) // of the host
	for i := range w.Allocators {
		if t := &w.Allocators[i]; t.Unreported { // they may be younger
			for k := range list {
				if list[k].Device == t.Device {
					list[k].Older = 0
				}
			}
		}
	}
	for _, r := range rest {
		r.Path = NoHolder
		if i := slices.IndexFunc(list, func(l HolderLine) bool { return l.Device == r.Device && l.Path == NoHolder }); i >= 0 {
			r.Held = addHeld(r.Held, &list[i].Held)
			list = slices.Delete(list, i, i+1)
		}
		list = append(list, r)
	}
	return list
}

// addHeld adds storages without a holder to memory without a storage.
func addHeld(rest ledger.Held, h *ledger.Held) ledger.Held {
	rest.Bytes += h.Bytes
	rest.Storages += h.Storages
	rest.Older += h.Older
	rest.InMotion += h.InMotion
	rest.Driver += h.Driver
	return rest
}

// heldLines returns holders as lines, clean of control characters.
func heldLines(list []ledger.Held) []HolderLine {
	lines := make([]HolderLine, len(list))
	for i, h := range list {
		h.Path, h.Class, h.Container = CleanPath(h.Path), untrusted.Clean(h.Class), untrusted.Clean(h.Container)
		h.Frames, h.Also = cleaned(h.Frames), cleaned(h.Also)
		lines[i] = HolderLine{Held: h, On: format.Device(h.Device, ledger.Tensor)}
	}
	return lines
}

// LineOf returns a holder as a line, clean of control characters.
func LineOf(h *ledger.Held) *HolderLine { return &heldLines([]ledger.Held{*h})[0] }

// CleanPath returns the path of a holder without control characters, never empty.
func CleanPath(path string) string { return cmp.Or(untrusted.Clean(path), "?") }

func cleaned(list []string) (out []string) {
	for _, text := range list {
		out = append(out, untrusted.Clean(text))
	}
	return out
}

// problems returns what the walk could not read, and what its figures leave open.
func (k *Kept) problems(s *ledger.Snapshot) []string {
	list := cleaned(k.walk.Problems)
	if n := SumHolders(k.Lines).InMotion; n > 0 {
		list = append(list, inMotionText(n))
	}
	var excess, older, now uint64
	for i := range k.walk.Allocators {
		t := &k.walk.Allocators[i]
		excess += t.Excess
		if t.Unreported {
			list = append(list, "PyTorch's allocator has not reported its totals for "+format.Device(t.Device, ledger.Tensor)+" yet: it may have more than the tensors that were found")
		}
		if live := s.TensorsOn(k.Process, t.Device); live != nil {
			older += t.Older
			now += min(live.Older, t.Older)
		}
	}
	if excess > 0 {
		list = append(list, format.Bytes(excess)+" of storages are left out: PyTorch freed as much while they were read")
	}
	if older > now {
		list = append(list, fmt.Sprintf("%s from before the attach were freed since the walk: which holder had them is known only where their addresses were used again", format.Bytes(older-now)))
	}
	return list
}

// HeldShare is the part of some memory that one holder keeps.
type HeldShare struct {
	Line  *HolderLine // nil: no holder found
	Bytes uint64
}

// Name returns the path, or NoHolder.
func (h *HeldShare) Name() string {
	if h.Line == nil {
		return NoHolder
	}
	return h.Line.Path
}

// Divide divides a share of memory by holder, the largest first and what has no known holder last.
// They add up to the share. It returns nil for memory that holders do not keep, and without a walk.
func (k *Kept) Divide(s *ledger.Snapshot, h *Holding) []HeldShare {
	if k == nil || k.Failure != "" || h.Live <= 0 {
		return nil
	}
	live := uint64(h.Live)
	switch {
	case h.IsNameless():
		parts, whole := k.older(s, h)
		return k.shares(ledger.Divide(parts, whole, live), live)
	case h.Plane == PlaneTensor && h.Device != ledger.CPUDevice, h.Plane == PlaneDriver && len(h.Site.Holders) > 0:
		return k.shares(k.siteParts(h.Site, live), live)
	}
	return nil
}

// AddShares returns the shares of two parts of some memory, the largest first, what has no known
// holder last.
func AddShares(a, b []HeldShare) []HeldShare {
	for _, x := range b {
		if i := slices.IndexFunc(a, func(y HeldShare) bool { return x.Line == y.Line }); i >= 0 {
			a[i].Bytes += x.Bytes
		} else {
			a = append(a, x)
		}
	}
	slices.SortStableFunc(a, func(x, y HeldShare) int {
		if (x.Line == nil) != (y.Line == nil) {
			if x.Line == nil {
				return 1
			}
			return -1
		}
		return cmp.Compare(y.Bytes, x.Bytes)
	})
	return a
}

// OfSites returns who keeps what lives of some sites of the process, the largest first, without
// what has no known holder.
func (k *Kept) OfSites(sites []*ledger.Site) []HeldShare {
	if k == nil {
		return nil
	}
	var all ledger.Site
	for _, x := range sites {
		all.LiveBytes += x.LiveBytes
		all.Holders = append(all.Holders, x.Holders...)
	}
	slices.SortStableFunc(all.Holders, func(a, b ledger.SiteHolder) int { return cmp.Compare(a.Holder, b.Holder) })
	merged := all.Holders[:0]
	for _, h := range all.Holders {
		if n := len(merged); n > 0 && merged[n-1].Holder == h.Holder {
			merged[n-1].Bytes += h.Bytes
		} else {
			merged = append(merged, h)
		}
	}
	all.Holders = merged
	list := k.shares(k.siteParts(&all, all.LiveBytes), all.LiveBytes)
	return slices.DeleteFunc(list, func(h HeldShare) bool { return h.Line == nil })
}

func (k *Kept) siteParts(x *ledger.Site, live uint64) []ledger.SiteHolder {
	if x == nil {
		return nil
	}
	return ledger.Divide(x.Holders, x.LiveBytes, live)
}

// older returns what each holder keeps of memory from before the attach that a share shows, and how
// much of it there is.
func (k *Kept) older(s *ledger.Snapshot, h *Holding) (parts []ledger.SiteHolder, whole uint64) {
	shown := func(device int32) bool {
		if b := s.BalanceOf(k.Process, device); b >= 0 && h.UUID != "" {
			return s.Balances[b].UUID == h.UUID
		}
		return device == h.Device
	}
	for i, left := range k.walk.Left {
		if left > 0 && shown(k.held[i].Device) {
			whole += left
			parts = append(parts, ledger.SiteHolder{Holder: i, Bytes: left})
		}
	}
	return parts, max(whole, uint64(h.Live))
}

// shares names parts of live bytes.
func (k *Kept) shares(parts []ledger.SiteHolder, live uint64) []HeldShare {
	var list []HeldShare
	var none uint64
	for _, p := range parts {
		n := min(p.Bytes, live)
		live -= n
		switch {
		case n == 0:
		case p.Holder < 0 || p.Holder >= len(k.held) || k.held[p.Holder].Path == NoHolder:
			none += n
		default:
			list = append(list, HeldShare{&k.held[p.Holder], n})
		}
	}
	slices.SortStableFunc(list, func(a, b HeldShare) int { return cmp.Compare(b.Bytes, a.Bytes) })
	if none += live; none > 0 {
		list = append(list, HeldShare{nil, none})
	}
	return list
}

// AsOfText returns "holders of python3 [4242] at 58s: 62.3 GiB of 62.8 GiB".
func (k *Kept) AsOfText(s *ledger.Snapshot) string {
	sum := SumHolders(k.Lines)
	return fmt.Sprintf("holders of %s at %s: %s of %s", format.Process(&s.Processes[k.Process]), format.Span(k.At), format.Bytes(sum.Found), format.Bytes(sum.Bytes))
}

// leastShare is the least share of memory for which its largest holder is named. Of less, another
// one keeps nearly all.
const leastShare = 0.01

// KeptText returns `kept by local "t".history[*] of main() (train.py:7), list of 1,204`; with the
// share if it is not almost all, and then with the share of which the walk found no holder, as
// where it ended early; "" if there is no holder to name.
func KeptText(list []HeldShare, live uint64) string {
	if len(list) == 0 || list[0].Line == nil || live == 0 {
		return ""
	}
	share := float64(list[0].Bytes) / float64(live)
	if share < leastShare {
		return ""
	}
	text := "kept by " + list[0].Line.Path
	if share < 0.95 {
		text = fmt.Sprintf("%.0f%% %s", 100*share, text)
	}
	if more := ContainerText(list[0].Line); more != "" {
		text += ", " + more
	}
	if last := list[len(list)-1]; last.Line == nil && share < 0.95 && float64(last.Bytes) >= leastShare*float64(live) {
		text += fmt.Sprintf("; no holder found for %.0f%%", 100*float64(last.Bytes)/float64(live))
	}
	return text
}
