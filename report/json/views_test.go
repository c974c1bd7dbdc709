// SPDX-License-Identifier: Apache-2.0

package json

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestViewsOfARecordingAreStable(t *testing.T) {
	s, st := reporttest.TorchSnapshot(), reporttest.TorchStacks()
	s.Sites[len(s.Sites)-1].AllocObjects += 100 // one that allocates and frees over and over
	s.Sites[len(s.Sites)-1].AllocBytes += 100 << 20
	o := report.Options{Top: 3}
	for name, write := range map[string]func(w io.Writer) error{
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
