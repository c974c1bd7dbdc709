// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// pprof prints comments above every report, those that begin with # only when
// asked to: beyond so many processes, details go there.
const maxLoudComments = 12

// comments says for people what samples cannot: reconciliation, remarks, doubts.
func comments(s *ledger.Snapshot, st callstack.Stacks) []string {
	var details []string
	list := s.Parts()
	for i := range list {
		details = append(details, partText(s, &list[i]))
	}
	details = append(details, torchTexts(s)...)
	details = append(details, remarks(s, st)...)
	for i := range details {
		if i >= maxLoudComments {
			details[i] = "# " + details[i]
		}
	}
	if text := asleepText(s); text != "" {
		details = append(details, text)
	}
	sum := sumOf(s, s.Sites)
	if sum.imported.objects > 0 {
		details = append(details, "samples of imported memory have no bytes, as those of its owner have them: "+sum.imported.text())
	}
	if sum.host.objects > 0 {
		details = append(details, "inuse_space is memory of GPUs; -sample_index=host_space shows what is on the host: "+sum.host.text())
	}
	if sum.managed.objects > 0 {
		details = append(details, "managed memory is in host_space too, as NVML counts it for no process: "+sum.managed.text())
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

func failuresText(s *ledger.Snapshot) string {
	var count uint64
	for i := range s.Failures {
		count += s.Failures[i].Count
	}
	return counted(count, "failed allocation") + " (vramprof leaks shows them with their stacks)"
}
