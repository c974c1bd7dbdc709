// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// pprof prints comments above every report, but those that begin with # only on request. After this
// many details, the rest begin with #.
const maxLoudComments = 12

// comments returns what samples cannot show: reconciliation, remarks and doubts, where sources
// are, and whether frames were cut off stacks.
func comments(s *ledger.Snapshot, st callstack.Stacks, source string, cut bool) []string {
	var details []string
	for _, x := range report.HighestPeaks(s) {
		text := report.EndedText(s, x) + ", as peak_space shows (-sample_index=peak_space): " + report.HeldText(x)
		for _, more := range []string{report.SitesAsOfText(s, x), report.RanOutText(s, x)} {
			if more != "" {
				text += "; " + more
			}
		}
		details = append(details, text)
	}
	if len(s.Peaks) > 1 {
		details = append(details, "peak_space has peaks of different moments: their sum can exceed what a GPU has")
	}
	list := s.Parts()
	for i := range list {
		details = append(details, report.PartText(s, &list[i]))
	}
	details = append(details, report.TorchTexts(s)...)
	details = append(details, report.StuckTexts(s, st)...)
	details = append(details, report.Remarks(s, st)...)
	found, _ := report.MostKept(s)
	for _, k := range found {
		details = append(details, k.AsOfText(s)+" (-tagroot=holder)")
	}
	for i := range details {
		if i >= maxLoudComments {
			details[i] = "# " + details[i]
		}
	}
	if cut {
		details = append(details, "stacks end at the code that called PyTorch or CUDA; -tagleaf=callee shows what it called")
	}
	if source != "" {
		details = append(details, source)
	}
	if text := report.AsleepText(s); text != "" {
		details = append(details, text)
	}
	sum := report.Sum(s, s.Sites)
	if sum.Imported.Objects > 0 {
		details = append(details, "samples of imported memory have no bytes, as those of its owner have them: "+sum.Imported.Text())
	}
	if sum.Host.Objects > 0 {
		details = append(details, "inuse_space is memory of GPUs; -sample_index=host_space shows what is on the host: "+sum.Host.Text())
	}
	if sum.Managed.Objects > 0 {
		details = append(details, "managed memory is in host_space too, as NVML counts it for no process: "+sum.Managed.Text())
	}
	if len(s.System) > 0 {
		details = append(details, "system-allocated memory on the NUMA nodes of GPUs is in host_space too")
	}
	for _, d := range report.Doubts(s) {
		details = append(details, kindOf(d.At)+d.Text)
	}
	if len(s.Failures) > 0 {
		details = append(details, report.FailuresText(s))
	}
	return details
}

// Comments about what the books could not account for begin with their kind, which Column reads.
const (
	kindDoubt       = "doubt: "
	kindWarning     = "warning: "
	kindHolders     = "doubt about holders: "
	kindWithoutThem = "doubt about missing holders: "
	oldHolders      = kindDoubt + "holders of "    // as versions before these kinds wrote them
	oldWithoutThem  = kindDoubt + "no holders of " // likewise
)

func kindOf(at report.Figure) string {
	switch at {
	case report.AtTitle:
		return kindWarning
	case report.AtHolders:
		return kindHolders
	case report.AtNoHolders:
		return kindWithoutThem
	}
	return kindDoubt
}

// doubt returns the doubt in a comment, and what it is about.
func doubt(comment string) (d report.Doubt, ok bool) {
	for _, kind := range []struct {
		at         report.Figure
		begin, key string
	}{
		{report.AtHolders, kindHolders, kindHolders},
		{report.AtNoHolders, kindWithoutThem, kindWithoutThem},
		{report.AtHolders, oldHolders, kindDoubt},
		{report.AtNoHolders, oldWithoutThem, kindDoubt},
		{report.AtTotals, kindDoubt, kindDoubt},
	} {
		if strings.HasPrefix(comment, kind.begin) {
			return report.Doubt{At: kind.at, Text: comment[len(kind.key):]}, true
		}
	}
	return report.Doubt{}, false
}
