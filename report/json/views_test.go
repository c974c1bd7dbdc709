// SPDX-License-Identifier: Apache-2.0

package json

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestViewsOfARecordingAreStable(t *testing.T) {
	s, st := reporttest.TorchSnapshot(), reporttest.TorchStacks()
	s.Sites[len(s.Sites)-1].AllocObjects += 100 // one that allocates and frees over and over
	s.Sites[len(s.Sites)-1].AllocBytes += 100 << 20
	o := report.Options{Top: 3}
	for name, write := range map[string]func(w io.Writer) error{
		"view-summary.json": func(w io.Writer) error {
			return WriteView(w, View{Name: "summary", Snapshot: reporttest.Ended(), Stacks: reporttest.Stacks()}, o)
		},
		"view-tree.json": func(w io.Writer) error {
			return WriteView(w, View{Name: "tree", Snapshot: s, Stacks: st}, o)
		},
		"view-table.json": func(w io.Writer) error {
			return WriteView(w, View{Name: "table", Snapshot: s, Stacks: st}, o)
		},
		"view-stats.json": func(w io.Writer) error {
			return WriteView(w, View{Name: "stats", Snapshot: s, Stacks: st, Sizes: reporttest.TorchSizes()}, o)
		},
		"view-timeline.json": func(w io.Writer) error {
			return WriteView(w, View{Name: "timeline", Snapshot: s, Stacks: st, Timeline: reporttest.TorchTimeline(s)}, o)
		},
	} {
		var b, again bytes.Buffer
		if err := errors.Join(write(&b), write(&again)); err != nil {
			t.Fatal(err)
		}
		reporttest.Golden(t, name, b.Bytes())
		if b.String() != again.String() {
			t.Errorf("%s differs when it is written again", name)
		}
	}
}

// TestEndedProcessesHaveWhatTheirMemoryWasFor at their peak, as the text of the summary has, with
// the holders of the books that were replayed.
func TestEndedProcessesHaveWhatTheirMemoryWasFor(t *testing.T) {
	s := reporttest.Ended()
	list := newViewReport(View{Name: "summary", Snapshot: s, Stacks: reporttest.Stacks()}, report.Options{Top: 1}).Ended
	if len(list) != 1 || list[0].PID != 4242 || list[0].Bytes != 576<<20 || !list[0].Tensors || len(list[0].Balances) != 1 {
		t.Fatalf("the highest peak of two: %+v", list)
	}
	b := list[0].Balances[0]
	sum := int64(0)
	for _, r := range b.Rows {
		sum += r.Bytes
	}
	if b.PID != 4242 || sum != b.Bytes || b.Bytes < 576<<20 || b.WalkedNS != nil {
		t.Errorf("rows of %d bytes: %+v", sum, b)
	}
	replayed := *s.Peaks[0].Books
	replayed.Walks = []ledger.Walked{{Time: s.Peaks[0].Time - 5}}
	o := report.Options{Peaks: map[ledger.ProcessID]*ledger.Snapshot{s.Processes[s.Peaks[0].Process].ID(): &replayed}}
	list = newViewReport(View{Name: "summary", Snapshot: s, Stacks: reporttest.Stacks()}, o).Ended
	if at := list[0].Balances[0].WalkedNS; len(list) != 2 || at == nil || *at != -5 {
		t.Errorf("with the walk of the replayed books: %+v", list)
	}
}
