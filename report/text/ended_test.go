// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

// TestTheSummaryBeginsWithThePeakOfWhatHasEnded, and why it ended; what was left comes after it.
func TestTheSummaryBeginsWithThePeakOfWhatHasEnded(t *testing.T) {
	for _, width := range []int{40, 80, 120} {
		var b bytes.Buffer
		if err := WriteSummary(&b, reporttest.Ended(), reporttest.Stacks(), report.Options{Top: 3}, Screen{Width: width}); err != nil {
			t.Fatal(err)
		}
		reporttest.CheckText(t, b.String(), width)
		reporttest.Golden(t, fmt.Sprintf("ended%d.txt", width), b.Bytes())
		last := -1
		for _, text := range []string{"python3 [4242] ended at", "It ran out of memory", "infer [5151] ended at", "Allocated since the attach"} {
			at := strings.Index(b.String(), text)
			if at <= last {
				t.Errorf("%d columns: %q is at %d, after %d", width, text, at, last)
			}
			last = at
		}
	}
}

// TestAJobHasAllRanksInOrder, not only the processes with the highest peaks.
func TestAJobHasAllRanksInOrder(t *testing.T) {
	s := reporttest.Ended()
	for i := range s.Peaks {
		p := &s.Processes[s.Peaks[i].Process]
		p.Rank, p.WorldSize = fmt.Sprint(10-i), "16" // the highest peak is not of the lowest rank
	}
	for _, width := range []int{40, 80, 120} {
		var b bytes.Buffer
		if err := WriteSummary(&b, s, reporttest.Stacks(), report.Options{Top: 3, Job: true}, Screen{Width: width}); err != nil {
			t.Fatal(err)
		}
		reporttest.CheckText(t, b.String(), width)
		reporttest.Golden(t, fmt.Sprintf("job%d.txt", width), b.Bytes())
		last := -1
		for _, text := range []string{"GPU memory of each rank", "rank 9 of 16", "rank 10 of 16", "Allocated since the attach"} {
			at := strings.Index(b.String(), text)
			if at <= last {
				t.Errorf("%d columns: %q is at %d, after %d", width, text, at, last)
			}
			last = at
		}
	}
}
