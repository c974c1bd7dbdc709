// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
)

// A helper's line is split into what leaks, by its caller, and what does not; and a line names what
// its stacks differ by.
func TestTopSplitsTheLineOfAHelper(t *testing.T) {
	s, stacks := reporttest.Helper(), reporttest.HelperStacks{}
	rows := func(judged *Verdicts) string {
		m := screenOf(160, 30, Options{Flat: true}, Moment{Snapshot: s, Stacks: stacks, Judged: judged})
		press(m, "3")
		return shownText(m)
	}
	text := rows(Judge(s, stacks))
	for _, want := range []string{"! leaking other CUDA  buffer.py:20 Buffer.keep", "utils.py:8 to_gpu", "gpt.py:25 Block.forward, in GELU.forward, Linear.forward"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("want %q once:\n%s", want, text)
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, "to_gpu") && (strings.Contains(line, "leaking") || !strings.Contains(line, "544 MiB")) {
			t.Errorf("the helper's own row: %s", line)
		}
	}
	if text := rows(nil); strings.Contains(text, "buffer.py") || !strings.Contains(text, "utils.py:8 to_gpu") { // before the first judgement
		t.Errorf("without verdicts:\n%s", text)
	}
}

// Lines have the name of the module whose memory they are, where a walk knows it.
func TestTopNamesTheModuleOfALine(t *testing.T) {
	s, stacks := reporttest.Modelled(), reporttest.HelperStacks{}
	m := screenOf(200, 30, Options{Flat: true}, Moment{Snapshot: s, Stacks: stacks, Judged: Judge(s, stacks)})
	press(m, "3")
	text := shownText(m)
	for _, want := range []string{"gpt.py:25 Block.forward, in GELU.forward, Linear.forward, LayerNorm.forward, of model.blocks.*.mlp", "utils.py:8 to_gpu"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("want %q once:\n%s", want, text)
		}
	}
}
