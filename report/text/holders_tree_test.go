// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/holders"
)

func TestHolderTree(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	early, later := reporttest.TrainingWalk(begin, 3, 4, 2), reporttest.TrainingWalk(begin.Add(30*time.Second), 3, 4, 9)
	for _, width := range []int{44, 80, 120} {
		for name, h := range map[string]report.Holders{
			"holder-tree":       {PID: 4242, Comm: "python3\x1b[31m", Result: early},
			"holder-tree-grown": {PID: 4242, Comm: "python3", Before: early, Result: later},
		} {
			var b bytes.Buffer
			if err := WriteHolderTree(&b, &h, report.Options{Top: 3}, Screen{Width: width}); err != nil {
				t.Fatal(err)
			}
			reporttest.CheckText(t, b.String(), width)
			reporttest.Golden(t, fmt.Sprintf("%s%d.txt", name, width), b.Bytes())
		}
	}
}

// TestHolderTreeOfDeepPathsFits: a path of 128 steps without a name that is short.
func TestHolderTreeOfDeepPathsFits(t *testing.T) {
	r := &holders.Result{}
	root := holders.Root{Kind: holders.RootModule, Name: "__main__"}
	var steps []holders.Step
	for range 128 {
		steps = append(steps, holders.Step{Kind: holders.StepAttr, Name: strings.Repeat("größe大", 9), Class: "x"})
		r.Storages = append(r.Storages, holders.Storage{Bytes: 1 << 62, DeviceType: 1, Holder: holders.NewHolder(root, steps...)})
	}
	for _, width := range []int{20, 44, 80} {
		var b bytes.Buffer
		if err := WriteHolderTree(&b, &report.Holders{Result: r, Before: r}, report.Options{}, Screen{Width: width}); err != nil {
			t.Fatal(err)
		}
		reporttest.CheckText(t, b.String(), width)
	}
}
