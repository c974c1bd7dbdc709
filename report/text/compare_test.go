// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// sameRanks compares the ranks of one capture.
func sameRanks(n int) *compare.Comparison {
	s := reporttest.RanksSnapshot(n)
	var columns []compare.Column
	for i := range s.Processes {
		c := compare.NewColumns(s, reporttest.TorchStacks(), []int{i})[0]
		c.File, c.Moment = "run.vram", "end"
		columns = append(columns, c)
	}
	return compare.New(columns)
}

// versions compares two captures; lines of model.py have moved in the second.
func versions() *compare.Comparison {
	var columns []compare.Column
	for i, s := range []int{0, 3} {
		c := compare.NewColumns(reporttest.RanksSnapshot(4), reporttest.TorchStacks(), []int{s})[0]
		c.File, c.Moment, c.Process.Rank, c.Process.LocalRank = []string{"before.vram", "after.vram"}[i], "peak", "", ""
		for k := range c.Held {
			if f := &c.Held[k].Frame; f.Line == 88 && i == 1 {
				f.Line = 91
				c.Held[k].Keepers = []compare.Keeper{{Path: `local "trainer".history[*] of main() (train.py:7)`, Bytes: 4 << 30}}
			}
		}
		columns = append(columns, c)
	}
	columns[1].Doubts = []string{"12 events were lost because buffers were full: counts and bytes can be too high or too low"}
	return compare.New(columns)
}

func comparisonText(t *testing.T, c *compare.Comparison, width int) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteComparison(&b, c, report.Options{Top: 4}, Screen{Width: width}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestComparisonsAreStable(t *testing.T) {
	for name, c := range map[string]*compare.Comparison{"ranks4-": sameRanks(4), "ranks8-": sameRanks(8), "ranks64-": sameRanks(64), "versions": versions()} {
		for _, width := range []int{40, 44, 80, 120} {
			reporttest.Golden(t, fmt.Sprintf("compare-%s%d.txt", name, width), []byte(comparisonText(t, c, width)))
		}
	}
}

// TestComparisonsFitEveryScreen, also with hostile names and with more columns than any screen has.
func TestComparisonsFitEveryScreen(t *testing.T) {
	hostile := versions()
	columns := slices.Clone(hostile.Columns)
	for i := range columns {
		columns[i].File = strings.Repeat("很", 60) + fmt.Sprint(i) + "\x1b[31m\n"
		columns[i].Host = "\x1b" + strings.Repeat("h", 90)
		columns[i].Doubts = append(columns[i].Doubts, "\x1b[2J很 doubt")
		columns[i].Held = append(columns[i].Held, compare.Held{
			Frame: callstack.Frame{Function: strings.Repeat("f", 200) + "\x1b", File: "/" + strings.Repeat("很/", 80) + "x.py", Line: 1 << 30, Python: true},
			Plane: "\x1b", Bytes: int64(i) << 62, Keepers: []compare.Keeper{{Path: strings.Repeat("model.", 50) + "weight", Bytes: int64(i) << 61}},
		})
	}
	for name, c := range map[string]*compare.Comparison{"versions": versions(), "hostile": compare.New(columns), "3": sameRanks(3), "5": sameRanks(5), "64": sameRanks(64)} {
		for width := minWidth; width <= 200; width++ {
			if reporttest.CheckText(t, comparisonText(t, c, width), width); t.Failed() {
				t.Fatalf("%s at %d columns:\n%s", name, width, comparisonText(t, c, width))
			}
		}
	}
}

func TestAnEqualComparisonSaysSo(t *testing.T) {
	if text := comparisonText(t, sameRanks(3), 80); !strings.Contains(text, "\nNone is odd: ") {
		t.Errorf("three equal ranks:\n%s", text)
	}
}
