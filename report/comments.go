// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// pprof prints comments above every report, those that begin with # only when
// asked to: beyond so many processes, details go there.
const maxLoudComments = 12

// comments says for people what samples cannot: reconciliation, remarks, doubts.
func comments(s *ledger.Snapshot) []string {
	var details []string
	for i := range s.Balances {
		details = append(details, balanceText(s, &s.Balances[i]))
	}
	details = append(details, remarks(s)...)
	for i := range details {
		if i >= maxLoudComments {
			details[i] = "# " + details[i]
		}
	}
	if imported := sumOf(s, s.Sites).imported; imported.objects > 0 {
		details = append(details, "samples of imported memory have no bytes, as those of its owner have them: "+imported.text())
	}
	for _, d := range doubts(s) {
		kind := "doubt: "
		if d.at == atTitle {
			kind = "warning: "
		}
		details = append(details, kind+d.text)
	}
	if len(s.Failures) > 0 {
		details = append(details, failuresText(s))
	}
	return details
}

// balanceText is "python3 [42] on cuda:0 GPU-a: NVML usage 6.0 GiB = baseline 310 MiB + traced 5.7 GiB + gap 2.0 MiB",
// and how much of the gap pools hold at most, if they do.
func balanceText(s *ledger.Snapshot, b *ledger.Balance) string {
	var at []string
	if b.Device >= 0 {
		at = append(at, deviceName(b.Device, ledger.Device))
	}
	at = append(at, symbolize.Clean(b.UUID))
	sign, gap := "+", uint64(b.Gap)
	if b.Gap < 0 {
		sign, gap = "-", -gap
	}
	text := fmt.Sprintf("%s on %s: NVML usage %s = baseline %s + traced %s %s gap %s",
		processName(&s.Processes[b.Process]), strings.Join(at, " "),
		bytesText(b.Usage), bytesText(b.Baseline), bytesText(b.Live), sign, bytesText(gap))
	if idle := idleText(b); idle != "" {
		text += ", " + idle
	}
	return text
}

// idleText is "of which up to 1.8 GiB idle in pools", "" if nothing of the gap can be.
func idleText(b *ledger.Balance) string {
	if b.Gap <= 0 || b.Idle == 0 {
		return ""
	}
	return fmt.Sprintf("of which up to %s idle in pools", bytesText(min(b.Idle, uint64(b.Gap))))
}

func failuresText(s *ledger.Snapshot) string {
	var count uint64
	for i := range s.Failures {
		count += s.Failures[i].Count
	}
	return counted(count, "failed allocation") + " (vramprof leaks shows them with their stacks)"
}
