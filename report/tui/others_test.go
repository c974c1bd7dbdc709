// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestWhatIsNotTracedStandsBelowTheProcesses at each width, without the traced ones, and with the
// driver's own first.
func TestWhatIsNotTracedStandsBelowTheProcesses(t *testing.T) {
	x := moments()["session"]
	x.Others = []Other{
		{PID: 4242, GPU: 0, Bytes: 3 << 30, Command: "python3"},
		{PID: 77, GPU: -1, Command: "keeps\x1b[31m zombie", Note: "has nvidia0 open, and NVML does not list it"},
		{PID: 78, GPU: 1, Bytes: 5 << 20, Command: strings.Repeat("long ", 40)},
		{GPU: 0, Bytes: 512 << 20, Command: "driver, reserved and not attributed"},
	}
	for _, width := range []int{44, 80, 120} {
		var once strings.Builder
		if err := Once(&once, x, Options{}, width); err != nil {
			t.Fatal(err)
		}
		m := screenOf(width, 40, Options{}, x)
		press(m, "2")
		for name, text := range map[string]string{"once": once.String(), "screen": shownText(m)} {
			_, below, found := strings.Cut(text, "Not traced, by NVML and the kernel")
			lines := strings.Split(below, "\n")
			if !found || len(lines) < 4 {
				t.Fatalf("%d columns, %s:\n%s", width, name, text)
			}
			for i, want := range []string{"", "0              512 MiB driver, reserved", "1        78   5.00 MiB long", "         77            keeps[31m zombie"} {
				if i > 0 && !strings.HasPrefix(lines[i], want) {
					t.Errorf("%d columns, %s: row %d is %q, want %q", width, name, i, lines[i], want)
				}
			}
			if strings.Contains(lines[4], "NVML does not list it") != (name == "once" && width > 44) {
				t.Errorf("%d columns, %s: %q", width, name, lines[4])
			}
			for _, line := range strings.Split(text, "\n") {
				if ansi.StringWidth(line) > width {
					t.Errorf("%d columns, %s: %q", width, name, line)
				}
			}
		}
	}
	m := screenOf(80, 12, Options{}, x)
	if press(m, "2"); strings.Contains(shownText(m), "Not traced") {
		t.Errorf("it takes the room of a small screen:\n%s", shownText(m))
	}
}

// TestWhoHasMemoryOfOthersStandsBelowTheProcesses: what a traced process imported, also of one that
// has ended, and what the kernel shows that traced and other processes have in common.
func TestWhoHasMemoryOfOthersStandsBelowTheProcesses(t *testing.T) {
	x := moments()["session"]
	s := *x.Snapshot
	x.Snapshot = &s
	last := len(s.Processes)
	s.Processes = append(slices.Clone(s.Processes), ledger.Process{PID: 31, Comm: "train\x1b[31m", End: s.End})
	importer := slices.IndexFunc(s.Processes, func(p ledger.Process) bool { return p.End == 0 })
	s.Sites = append(slices.Clone(s.Sites), ledger.Site{Process: importer, Kind: ledger.Imported, LiveBytes: 3 << 30, LiveObjects: 1, Owners: []ledger.Owner{{Process: last}}})
	pid := s.Processes[importer].PID
	x.Others = []Other{
		{PID: pid, GPU: 0, Bytes: 3 << 30, Command: "traced", Note: "has 2 dma-bufs", Shares: "has 2 dma-bufs"},
		{PID: pid, GPU: 1, Bytes: 3 << 30, Command: "traced", Note: "has 2 dma-bufs", Shares: "has 2 dma-bufs"},
		{PID: 78, GPU: -1, Command: "viewer", Note: "has 1 dma-buf", Shares: "has 1 dma-buf"},
	}
	var once strings.Builder
	if err := Once(&once, x, Options{}, 120); err != nil {
		t.Fatal(err)
	}
	m := screenOf(120, 40, Options{}, x)
	press(m, "2")
	for name, text := range map[string]string{"once": once.String(), "screen": shownText(m)} {
		_, below, found := strings.Cut(text, "Have memory of other processes")
		below, _, _ = strings.Cut(below, "Not traced, by NVML")
		want := []string{fmt.Sprintf("%11d ", pid), "has imported 3.00 GiB of train[31m [31], which has ended", "traced: has 2 dma-bufs"}
		for _, part := range want {
			if !strings.Contains(below, part) {
				t.Errorf("%s: no %q in\n%s", name, part, text)
			}
		}
		if viewer := strings.Contains(below, "viewer: has 1 dma-buf"); !found || strings.Count(below, "traced: has") != 1 || viewer != (name == "screen") {
			t.Errorf("%s: %v\n%s", name, viewer, text)
		}
	}
	for i := range s.Sites { // nobody has imported anything
		if s.Sites[i].Kind == ledger.Imported {
			s.Sites[i].LiveObjects = 0
		}
	}
	x.Others = nil
	if m := screenOf(120, 40, Options{}, x); strings.Contains(shownText(m), "Have memory") {
		t.Error(shownText(m))
	}
}
