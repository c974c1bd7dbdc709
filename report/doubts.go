// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Doubts returns all losses and warnings of a snapshot, and how old NVML's readings are.
func Doubts(s *ledger.Snapshot) []Doubt {
	list := Losses(s)
	for _, text := range arenaTexts(s) {
		list = append(list, Doubt{AtBalance, text})
	}
	for _, text := range readingTexts(s) {
		list = append(list, Doubt{AtBalance, text})
	}
	if text := SystemText(s); text != "" {
		list = append(list, Doubt{AtBalance, text})
	}
	for _, text := range UnlistedTexts(s) {
		list = append(list, Doubt{AtBalance, text})
	}
	return list
}

// Losses returns all losses and warnings of a snapshot, and what walks of memory leave open.
func Losses(s *ledger.Snapshot) []Doubt {
	st := &s.Stats
	var list []Doubt
	add := func(at Figure, n uint64, one, many string) {
		switch {
		case n == 1:
			list = append(list, Doubt{at, one})
		case n > 1:
			list = append(list, Doubt{at, humanize.Comma(int64(n)) + " " + many})
		}
	}
	unknown := st.Lost
	for _, reason := range slices.Sorted(maps.Keys(st.LostFor)) {
		n, why := st.LostFor[reason], wordsFor(reason, lossReasons)
		unknown -= min(n, unknown)
		add(AtTotals, n, lostText("1 event was lost", why), lostText("events were lost", why))
	}
	add(AtTotals, unknown, lostText("1 event was lost", "for a reason that was not recorded"), lostText("events were lost", "for reasons that were not recorded"))
	add(AtTotals, st.Evicted,
		"1 allocation beyond the limit of live allocations is counted as allocated, but in no live figure",
		"allocations beyond the limit of live allocations are counted as allocated, but in no live figure")
	add(AtTotals, st.Reused,
		"1 address was allocated again without a recorded free: its older allocation counts as freed",
		"addresses were allocated again without a recorded free: their older allocations count as freed")
	add(AtTotals, st.UnknownSizes,
		"1 allocation of unknown size is counted with 0 bytes",
		"allocations of unknown size are counted with 0 bytes")
	if text := sampleText(s); text != "" {
		list = append(list, Doubt{AtStacks, text})
	}
	if text := missingText(st); text != "" {
		list = append(list, Doubt{AtStacks, text})
	}
	if text := truncations(st.Truncated); text != "" {
		list = append(list, Doubt{AtStacks, text})
	}
	add(AtStacks, st.Torn,
		"1 stack was overwritten while it was copied, and is missing",
		"stacks were overwritten while they were copied, and are missing")
	add(AtBalance, st.UnmatchedFrees,
		"1 free was of memory allocated before the attach: unexplained may be too low by its unknown size",
		"frees were of memory allocated before the attach: unexplained may be too low by their unknown size")
	list = append(list, shareDoubts(s)...)
	list = append(list, placeDoubts(s)...)
	list = append(list, heldDoubts(s)...)
	if text := awayText(s); text != "" {
		list = append(list, Doubt{AtStacks, text})
	}
	for _, text := range unreportedTexts(s) {
		list = append(list, Doubt{AtTotals, text})
	}
	if text := costText(s); text != "" {
		list = append(list, Doubt{AtTitle, text})
	}
	if s.Opened > s.Begin {
		list = append(list, Doubt{AtTitle, openedText(s)})
	}
	for _, w := range s.Warnings {
		list = append(list, Doubt{AtTitle, untrusted.Clean(w)})
	}
	return list
}

// lossReasons are the words for ledger's reasons of lost events.
var lossReasons = map[string]string{
	ledger.LostBuffersFull:    "because buffers were full",
	ledger.LostShareUsed:      "because their process had used its share of the buffers",
	ledger.LostTablesFull:     "because tables of threads or allocators were full",
	ledger.LostNoMemory:       "because the kernel had no memory for the state of a thread or allocator",
	ledger.LostTooNested:      "because too many traced calls were nested",
	ledger.LostUnreadable:     "because the memory with their results could not be read",
	ledger.LostUndecodable:    "because vramprof could not decode or book them",
	ledger.LostSkipped:        "because the kernel did not run the programs of their probes",
	ledger.LostNoRoomInLedger: "because the books had no room for their process",
}

// wordsFor returns the words for one of ledger's reasons. Captures of older versions have the words
// themselves, and failures of the system have no code.
func wordsFor(reason string, table map[string]string) string {
	if words, ok := table[reason]; ok {
		return words
	}
	return untrusted.Clean(reason)
}

// lostText is the sentence about lost events with one reason.
func lostText(lost, reason string) string {
	return lost + " " + reason + ": counts and bytes can be too high or too low"
}

// openedText names where the begin of the session is, of a capture that begins later.
func openedText(s *ledger.Snapshot) string {
	return fmt.Sprintf("the session began %s before this capture: earlier moments, and processes that ended before, are in the captures before it", format.Span(s.Opened-s.Begin))
}

// readingTexts describes how NVML's last readings of running processes differ from the books of
// this moment.
func readingTexts(s *ledger.Snapshot) (list []string) {
	var since, age, unsure uint64
	for i := range s.Balances {
		if b := &s.Balances[i]; s.Processes[b.Process].End == 0 {
			unsure += b.Doubt
			if b.Since != 0 {
				since += Magnitude(b.Since)
				age = max(age, Minus(s.End, b.Time))
			}
		}
	}
	if age > 0 {
		list = append(list, fmt.Sprintf("NVML was read up to %s before this moment; usage is corrected by the %s booked since then", format.Span(age), format.Bytes(since)))
	}
	if unsure > 0 {
		list = append(list, fmt.Sprintf("%s came or went while NVML was read: unexplained may be off by up to that", format.Bytes(unsure)))
	}
	return list
}

// sampleText returns "tensor sites are estimated from 1,234 of 98,765 live tensors, one in 1.00 MiB
// (standard error of the largest: 12.0 MiB); their sum is exact", or "" if every tensor was
// recorded.
func sampleText(s *ledger.Snapshot) string {
	var sampled, live, err uint64
	var halvings uint8
	for i := range s.Tensors {
		t := &s.Tensors[i]
		sampled += t.Sampled
		live += t.LiveObjects
		err = max(err, t.Error)
		halvings = max(halvings, t.Halvings)
	}
	if sampled >= live {
		return ""
	}
	text := fmt.Sprintf("tensor sites are estimated from %s of %s", humanize.Comma(int64(sampled)), format.Count(live, "live tensor"))
	text += rateText(s.Sampling, halvings)
	if err > 0 {
		text += fmt.Sprintf(" (standard error of the largest: %s)", format.Bytes(err))
	}
	return text + "; their sum is exact"
}

// rateText returns ", one in 1.00 MiB, and up to 8 times fewer where more than 4,000 stacks a
// second were needed".
func rateText(r ledger.SampleRate, halvings uint8) (text string) {
	if r.Mean > 0 {
		text = ", one in " + format.Bytes(r.Mean)
	}
	if halvings > 0 {
		text += fmt.Sprintf(", and up to %s times fewer where more than %s stacks a second were needed",
			humanize.Comma(1<<min(halvings, 62)), humanize.Comma(int64(r.Limit)))
	}
	return text
}

// truncations returns "5 stacks are truncated: 3 too deep, 2 no unwind table".
func truncations(byReason map[string]uint64) string {
	sum, parts := reasons(byReason)
	if sum == 0 {
		return ""
	}
	verb := "are"
	if sum == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%s %s truncated: %s", format.Count(sum, "stack"), verb, strings.Join(parts, ", "))
}

// missingText returns the number of events without a stack, with the reasons.
func missingText(st *ledger.Stats) string {
	if st.NoStack == 0 {
		return ""
	}
	verb := "have"
	if st.NoStack == 1 {
		verb = "has"
	}
	why := ", as unwind tables were not loaded yet, or there was no room" // captures of older versions have no reasons
	switch _, parts := reasons(st.Missing); len(parts) {
	case 0:
	case 1:
		for reason := range st.Missing {
			why = ", " + untrusted.Clean(reason)
		}
	default:
		why = ": " + strings.Join(parts, ", ")
	}
	return fmt.Sprintf("%s of %s %s no stack%s", humanize.Comma(int64(st.NoStack)), format.Count(st.Stacks, "event"), verb, why)
}

// reasons lists counts by reason, and returns their sum.
func reasons(byReason map[string]uint64) (sum uint64, parts []string) {
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		if n := byReason[reason]; n != 0 {
			sum += n
			parts = append(parts, fmt.Sprintf("%s %s", humanize.Comma(int64(n)), untrusted.Clean(reason)))
		}
	}
	return sum, parts
}

// noticeable is the share of a thread's time above which all reports show what tracing took.
const noticeable = 0.05

// CostText returns "Tracing took 3.1% of the busiest thread's time, and up to 7.3% within 10s
// (python3 [4121], 38,000 tensors a second)", or "" if no tensors were traced or the price of their
// probe is not known.
func CostText(s *ledger.Snapshot) string {
	c := &s.Stats.Cost
	if c.Price == 0 || c.Session.PID == 0 {
		return ""
	}
	return fmt.Sprintf("Tracing took %s of the busiest thread's time, and up to %s within 10s (%s)",
		percent(c.Session.Share()), percent(c.Highest.Share()), busiest(s, c.Highest))
}

// costText returns what tracing cost where it was much, and what to do about it, or "".
func costText(s *ledger.Snapshot) string {
	c := &s.Stats.Cost
	if c.Highest.Share() <= noticeable || c.Budget > 0 {
		return ""
	}
	return fmt.Sprintf("tracing took up to %s of the busiest thread's time (%s): --budget 2 bounds it",
		percent(c.Highest.Share()), busiest(s, c.Highest))
}

// awayText returns for how much of the session tensors were not traced because of a budget, or "".
func awayText(s *ledger.Snapshot) string {
	c := &s.Stats.Cost
	if c.Away == 0 {
		return ""
	}
	var untraced, all uint64
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.Device >= 0 && s.Processes[t.Process].End == 0 {
			untraced, all = untraced+t.Untraced, all+t.Allocated
		}
	}
	lost := "all live tensors have kept their stacks"
	if untraced > 0 {
		lost = fmt.Sprintf("%s of tensors (%s) have no stack, and no verdict", format.Bytes(untraced), format.Share(untraced, all))
	}
	whose, most := "tensors", ""
	switch {
	case c.Paused > 1:
		whose, most = fmt.Sprintf("tensors of %d processes", c.Paused), "up to "
	case c.AwayPID != 0:
		whose = "tensors of " + processName(s, c.AwayPID)
	}
	return fmt.Sprintf("%s were not traced for %s%s of the session, since tracing may take %s of a thread's time: %s",
		whose, most, percent(float64(c.Away)/float64(max(Minus(s.End, s.Begin), 1))), percent(float64(c.Budget)/1e6), lost)
}

// unreportedTexts returns a sentence for each process whose allocator has not reported the tensors
// that walks found: when they were allocated, and whether they stay, is not known.
func unreportedTexts(s *ledger.Snapshot) (list []string) {
	for i := range s.Processes {
		w, bytes := s.LatestWalk(i), uint64(0)
		if w == nil || s.Processes[i].End != 0 {
			continue
		}
		for k := range w.Allocators {
			if t := &w.Allocators[k]; t.Unreported {
				bytes += t.Allocated
			}
		}
		if bytes > 0 {
			list = append(list, fmt.Sprintf("%s of tensors of %s were not reported since the attach: they may be younger than it, and have no verdict (--budget 0 and --tensors=off trace none)",
				format.Bytes(bytes), format.Process(&s.Processes[i])))
		}
	}
	return list
}

// busiest names a process and its rate. PyTorch reports each tensor twice: when it is allocated and
// when it is freed.
func busiest(s *ledger.Snapshot, c ledger.CostShare) string {
	return fmt.Sprintf("%s, %s tensors a second", processName(s, c.PID), humanize.Comma(int64(math.Round(min(c.PerSecond()/2, 1e12)))))
}

func processName(s *ledger.Snapshot, pid uint32) string {
	for i := range s.Processes {
		if p := &s.Processes[i]; p.PID == pid {
			return format.Process(p)
		}
	}
	return fmt.Sprintf("process %d", pid)
}

// percent writes a share of at most 100% with three digits.
func percent(share float64) string { return fmt.Sprintf("%.3g%%", 100*min(share, 1)) }

// heldDoubts returns what the walks could not read.
func heldDoubts(s *ledger.Snapshot) (list []Doubt) {
	found, failed := MostKept(s)
	for _, k := range found {
		for _, text := range k.problemTexts(s) {
			list = append(list, Doubt{AtHolders, text})
		}
	}
	for _, text := range failedTexts(s, failed, len(found) > 0) {
		list = append(list, Doubt{AtNoHolders, text})
	}
	return list
}

// problemTexts returns "holders of python3 [4242]: 12 objects were not read", one for each problem.
func (k *Kept) problemTexts(s *ledger.Snapshot) (list []string) {
	for _, text := range k.Problems {
		list = append(list, "holders of "+format.Process(&s.Processes[k.Process])+": "+text)
	}
	return list
}

// HolderDoubts returns what the latest walk of a process could not read, and why it failed; neither
// of a process of which nobody expects holders.
func HolderDoubts(s *ledger.Snapshot, process int) (problems, failures []string) {
	found, failed := MostKept(s)
	for _, k := range found {
		if k.Process == process {
			problems = append(problems, k.problemTexts(s)...)
		}
	}
	failed = slices.DeleteFunc(failed, func(k *Kept) bool { return k.Process != process })
	return problems, failedTexts(s, failed, len(found) > 0)
}

// pluralReason makes a reason of one process that of several.
var pluralReason = strings.NewReplacer("its Python", "their Python", "its memory", "their memory", "the process freed", "the processes freed", "in the process", "in the processes")

// failedTexts returns "no holders of infer [4300]: no Python interpreter in the process", one for
// each reason. In a session without holders, only processes with tensors count: nobody expects
// holders of others.
func failedTexts(s *ledger.Snapshot, failed []*Kept, others bool) (list []string) {
	reports := ReportTensors(s)
	byReason := map[string][]*Kept{}
	var reasons []string
	for _, k := range failed {
		if !others && !reports[k.Process] {
			continue
		}
		if byReason[k.Failure] == nil {
			reasons = append(reasons, k.Failure)
		}
		byReason[k.Failure] = append(byReason[k.Failure], k)
	}
	for _, reason := range reasons {
		of, why := format.Process(&s.Processes[byReason[reason][0].Process]), reason
		if n := len(byReason[reason]); n > 1 {
			of = format.Count(uint64(n), "process")
			why = pluralReason.Replace(reason)
		}
		list = append(list, "no holders of "+of+": "+why)
	}
	return list
}
