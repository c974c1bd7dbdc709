// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// place is the figure that a doubt touches.
type place int

const (
	atTotals place = iota
	atStacks
	atBalance
	atTitle
)

// doubt is one sentence about what the books could not take in.
type doubt struct {
	at   place
	text string
}

// doubts says all losses and warnings of a snapshot in words, and how NVML's figures are of its moment.
func doubts(s *ledger.Snapshot) []doubt {
	list := losses(s)
	for _, text := range readingTexts(s) {
		list = append(list, doubt{atBalance, text})
	}
	return list
}

// losses says all losses and warnings.
func losses(s *ledger.Snapshot) []doubt {
	st := &s.Stats
	var list []doubt
	add := func(at place, n uint64, one, many string) {
		switch {
		case n == 1:
			list = append(list, doubt{at, one})
		case n > 1:
			list = append(list, doubt{at, humanize.Comma(int64(n)) + " " + many})
		}
	}
	add(atTotals, st.Lost,
		"1 event was lost for want of room: counts and bytes can be too high or too low",
		"events were lost for want of room: counts and bytes can be too high or too low")
	add(atTotals, st.Evicted,
		"1 allocation beyond the limit of live allocations is counted as allocated, but in no live figure",
		"allocations beyond the limit of live allocations are counted as allocated, but in no live figure")
	add(atTotals, st.Reused,
		"1 address was handed out again without a free that was seen: its older allocation counts as freed",
		"addresses were handed out again without a free that was seen: their older allocations count as freed")
	add(atTotals, st.UnknownSizes,
		"1 allocation of unknown size is counted with 0 bytes",
		"allocations of unknown size are counted with 0 bytes")
	if text := sampleText(s); text != "" {
		list = append(list, doubt{atStacks, text})
	}
	if text := missingText(st); text != "" {
		list = append(list, doubt{atStacks, text})
	}
	if text := truncations(st.Truncated); text != "" {
		list = append(list, doubt{atStacks, text})
	}
	add(atStacks, st.Torn,
		"1 stack was overwritten while it was taken, and is left out",
		"stacks were overwritten while they were taken, and are left out")
	add(atBalance, st.UnmatchedFrees,
		"1 free was of memory allocated before tracing began: unexplained may be too low by its unknown size",
		"frees were of memory allocated before tracing began: unexplained may be too low by their unknown size")
	list = append(list, shareDoubts(s)...)
	list = append(list, placeDoubts(s)...)
	for _, w := range s.Warnings {
		list = append(list, doubt{atTitle, untrusted.Clean(w)})
	}
	return list
}

// readingTexts say what is booked beside NVML's last readings of running processes, if anything.
func readingTexts(s *ledger.Snapshot) (list []string) {
	var since, age, unsure uint64
	for i := range s.Balances {
		if b := &s.Balances[i]; s.Processes[b.Process].End == 0 {
			unsure += b.Doubt
			if b.Since != 0 {
				since += magnitude(b.Since)
				age = max(age, minus(s.End, b.Time))
			}
		}
	}
	if age > 0 {
		list = append(list, fmt.Sprintf("NVML was read up to %s before this moment; usage is corrected by the %s booked since then", span(age), BytesText(since)))
	}
	if unsure > 0 {
		list = append(list, fmt.Sprintf("%s came or went while NVML was read: unexplained may be off by up to that", BytesText(unsure)))
	}
	return list
}

// sampleText is "tensor sites are estimated from 1,234 of 98,765 live tensors, one in 1.00 MiB (standard error of the
// largest: 12.0 MiB); their sum is exact", "" where every tensor is in the books.
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
	text := fmt.Sprintf("tensor sites are estimated from %s of %s", humanize.Comma(int64(sampled)), counted(live, "live tensor"))
	text += rateText(s.Sampling, halvings)
	if err > 0 {
		text += fmt.Sprintf(" (standard error of the largest: %s)", BytesText(err))
	}
	return text + "; their sum is exact"
}

// rateText is ", one in 1.00 MiB, and up to 8 times fewer where more than 4,000 stacks a second were needed".
func rateText(r ledger.SampleRate, halvings uint8) (text string) {
	if r.Mean > 0 {
		text = ", one in " + BytesText(r.Mean)
	}
	if halvings > 0 {
		text += fmt.Sprintf(", and up to %s times fewer where more than %s stacks a second were needed",
			humanize.Comma(1<<min(halvings, 62)), humanize.Comma(int64(r.Limit)))
	}
	return text
}

// truncations is "5 stacks are truncated: 3 too deep, 2 no unwind table".
func truncations(byReason map[string]uint64) string {
	sum, parts := reasons(byReason)
	if sum == 0 {
		return ""
	}
	verb := "are"
	if sum == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%s %s truncated: %s", counted(sum, "stack"), verb, strings.Join(parts, ", "))
}

// missingText says how many events have no stack, and why.
func missingText(st *ledger.Stats) string {
	if st.NoStack == 0 {
		return ""
	}
	verb := "have"
	if st.NoStack == 1 {
		verb = "has"
	}
	why := ", as unwind tables were not loaded yet, or there was no room" // of captures before there were reasons
	switch _, parts := reasons(st.Missing); len(parts) {
	case 0:
	case 1:
		for reason := range st.Missing {
			why = ", " + untrusted.Clean(reason)
		}
	default:
		why = ": " + strings.Join(parts, ", ")
	}
	return fmt.Sprintf("%s of %s %s no stack%s", humanize.Comma(int64(st.NoStack)), counted(st.Stacks, "event"), verb, why)
}

// reasons lists counts by reason, and adds them up.
func reasons(byReason map[string]uint64) (sum uint64, parts []string) {
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		if n := byReason[reason]; n != 0 {
			sum += n
			parts = append(parts, fmt.Sprintf("%s %s", humanize.Comma(int64(n)), untrusted.Clean(reason)))
		}
	}
	return sum, parts
}

// notes numbers footnotes in the order in which they are first referred to.
type notes struct {
	doubts []doubt
	texts  []string
}

// mark returns the signs of all doubts about a place: "¹ ²".
func (n *notes) mark(at place) string {
	var signs []string
	for _, d := range n.doubts {
		if d.at == at {
			signs = append(signs, superscript(n.number(d.text)))
		}
	}
	return strings.Join(signs, " ")
}

func (n *notes) number(text string) int {
	i := slices.Index(n.texts, text)
	if i < 0 {
		n.texts = append(n.texts, text)
		i = len(n.texts) - 1
	}
	return i + 1
}

func superscript(n int) string {
	digits := []rune("⁰¹²³⁴⁵⁶⁷⁸⁹")
	var b strings.Builder
	for _, d := range fmt.Sprint(n) {
		b.WriteRune(digits[d-'0'])
	}
	return b.String()
}
