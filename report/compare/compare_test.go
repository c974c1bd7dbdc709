// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const gib = int64(1) << 30

// rankColumns returns a column for each rank, as of one capture.
func rankColumns(n int) []compare.Column {
	s := reporttest.RanksSnapshot(n)
	var list []compare.Column
	users, _ := compare.Users(s)
	for _, i := range users {
		c := compare.NewColumns(s, reporttest.TorchStacks(), []int{i})[0]
		c.File, c.Moment = "run.vram", "end"
		list = append(list, c)
	}
	return list
}

// held returns a column of lines of Python code: "train.py:88 step" and its bytes.
func held(file string, lines map[string]int64) compare.Column {
	c := compare.Column{File: file, Moment: "end", All: 1}
	for text, bytes := range lines {
		path, rest, _ := strings.Cut(text, ":")
		number, function, _ := strings.Cut(rest, " ")
		n := 0
		for _, digit := range number {
			n = 10*n + int(digit-'0')
		}
		c.Held = append(c.Held, compare.Held{Frame: callstack.Frame{Function: function, File: path, Line: n, Python: true}, Plane: report.PlaneTensor, Bytes: bytes})
	}
	return c
}

// rowTexts returns the rows as "train.py:88 step: 1 2", in GiB.
func rowTexts(c *compare.Comparison) (list []string) {
	for i := range c.Rows {
		front, back := frames.Parts(&c.Rows[i].Frame)
		text := strings.TrimSpace(front+" "+back) + ":"
		for _, bytes := range c.Rows[i].Bytes {
			text += " " + string(rune('0'+bytes/gib))
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}

func TestTheOddRankIsNamedWithItsLines(t *testing.T) {
	c := compare.New(rankColumns(8))
	if want := []string{"rank 0", "rank 1", "rank 2", "rank 3", "rank 4", "rank 5", "rank 6", "rank 7"}; !slices.Equal(c.Names, want) || !c.ByRank {
		t.Errorf("columns %q, by rank: %v", c.Names, c.ByRank)
	}
	if len(c.Odd) != 2 || c.Odd[0].Column != 3 || !c.Odd[0].InAll || len(c.Odd[0].Rows) != 2 {
		t.Fatalf("odd: %+v", c.Odd)
	}
	first, second := c.Rows[c.Odd[0].Rows[0]], c.Rows[c.Odd[0].Rows[1]]
	if first.Frame.Function != "Block.forward" || first.Difference < 4*gib-20<<20 || second.Frame.Function != "init" || second.Difference != 300<<20 {
		t.Errorf("rank 3 is odd in %+v and %+v", first, second)
	}
	if o := c.Odd[1]; o.Column != 4 || o.InAll || len(o.Rows) != 1 || c.Rows[o.Rows[0]].Frame.Function != report.MarkCache {
		t.Errorf("rank 4: %+v", o)
	}
}

// TestColumnsAddUpToWhatNVMLReports: rows of lines, cache, older and unexplained memory.
func TestColumnsAddUpToWhatNVMLReports(t *testing.T) {
	for _, s := range []*ledger.Snapshot{reporttest.RanksSnapshot(4), reporttest.TorchSnapshot(), reporttest.Snapshot()} {
		st := reporttest.TorchStacks()
		var columns []compare.Column
		want := map[int]int64{}
		for _, x := range s.Parts() {
			want[x.Process] += int64(report.PartUsage(&x))
		}
		for i := range s.Processes {
			columns = append(columns, compare.NewColumns(s, st, []int{i})[0])
		}
		c := compare.New(columns)
		for i := range columns {
			if want[i] != 0 && c.Total.Bytes[i] != want[i] {
				t.Errorf("process %d: %d bytes, NVML reports %d", i, c.Total.Bytes[i], want[i])
			}
		}
		sum := compare.Sum(c.Rows, "")
		if !slices.Equal(sum.Bytes, c.Total.Bytes) {
			t.Errorf("rows add up to %v, the total is %v", sum.Bytes, c.Total.Bytes)
		}
	}
}

func TestNothingIsOddWhereAllAgreeOrAllDiffer(t *testing.T) {
	of := func(values ...int64) *compare.Comparison {
		var columns []compare.Column
		for i, bytes := range values {
			columns = append(columns, held(string(rune('a'+i)), map[string]int64{"train.py:1 step": bytes}))
		}
		return compare.New(columns)
	}
	for _, values := range [][]int64{
		{4 * gib, 4 * gib, 4 * gib},
		{4 * gib, 4*gib + 300<<20, 4 * gib},               // below a tenth
		{4 * gib, 4 * gib, 8 * gib, 8 * gib},              // two kinds of ranks
		{1 * gib, 2 * gib, 3 * gib, 4 * gib, 5 * gib},     // stages of a pipeline
		{100 << 20, 104 << 20, 100 << 20},                 // a small job
		{4 * gib, 4 * gib},                                // two files
		{0, 0, 0, 0, 0, 0, 0, 4 << 20},                    // pages of the driver
		{40 * gib, 40*gib + 1<<20, 40*gib + 2<<20, 43e9},  // 43e9 is 40.05 GiB
		{gib, gib + 60<<20, gib - 60<<20, gib, gib, 1e9},  // noise
		{-3 << 20, 2 << 20, 0, 1 << 20, 2 << 20, 2 << 20}, // unexplained alone
	} {
		if c := of(values...); len(c.Odd) > 0 {
			t.Errorf("%v: odd %+v", values, c.Odd)
		}
	}
	for _, values := range [][]int64{
		{4 * gib, 4 * gib, 8 * gib},
		{4 * gib, 4 * gib, 4 * gib, 4 * gib, 0},
		{4 * gib, 5 * gib},
		{100 << 20, 100 << 20, 130 << 20},
	} {
		c := of(values...)
		if len(c.Odd) != 1 || c.Odd[0].Column != len(values)-1 {
			t.Errorf("%v: odd %+v", values, c.Odd)
		}
	}
}

func TestLinesAreFoundAgainWhereTheyMoved(t *testing.T) {
	for name, x := range map[string]struct {
		a, b map[string]int64
		want []string
	}{
		"same":    {map[string]int64{"v1/t.py:8 step": gib}, map[string]int64{"v1/t.py:8 step": 2 * gib}, []string{"v1/t.py:8 step: 1 2"}},
		"folders": {map[string]int64{"v1/t.py:8 step": gib}, map[string]int64{"v2/t.py:8 step": 2 * gib}, []string{"v2/t.py:8 step: 1 2"}},
		"moved":   {map[string]int64{"t.py:8 step": gib, "t.py:9 step": 3 * gib}, map[string]int64{"t.py:18 step": 2 * gib, "t.py:19 step": 4 * gib}, []string{"t.py:18 step: 1 2", "t.py:19 step: 3 4"}},
		"added":   {map[string]int64{"t.py:8 step": gib}, map[string]int64{"t.py:18 step": 2 * gib, "t.py:19 step": 4 * gib}, []string{"t.py step: 1 6"}},
		"common":  {map[string]int64{"t.py:8 step": gib}, map[string]int64{"t.py:8 step": 2 * gib, "t.py:19 step": 4 * gib}, []string{"t.py:19 step: 0 4", "t.py:8 step: 1 2"}},
		"two":     {map[string]int64{"a/t.py:8 f": gib, "b/t.py:8 f": 2 * gib}, map[string]int64{"a/t.py:8 f": 3 * gib}, []string{"a/t.py:8 f: 1 3", "b/t.py:8 f: 2 0"}},
	} {
		if got := rowTexts(compare.New([]compare.Column{held("a.vram", x.a), held("b.vram", x.b)})); !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
		if name == "moved" { // not between ranks of one run
			got := rowTexts(compare.New([]compare.Column{held("a.vram", x.a), held("a.vram", x.b)}))
			if len(got) != 4 {
				t.Errorf("one file: %q", got)
			}
		}
	}
}

func TestColumnsAreNamedByWhatDiffers(t *testing.T) {
	column := func(file, moment, host, pod, rank string, pid uint32) compare.Column {
		return compare.Column{File: file, Moment: moment, Host: host, Process: ledger.Process{PID: pid, Comm: "python3", Workload: ledger.Workload{Pod: pod, Rank: rank}}}
	}
	for _, x := range []struct {
		columns []compare.Column
		want    []string
	}{
		{[]compare.Column{column("a.vram", "end", "h", "", "0", 1), column("b.vram", "end", "h", "", "1", 2)}, []string{"rank 0", "rank 1"}},
		{[]compare.Column{column("a.vram", "end", "h", "", "0", 1), column("b.pb.gz", "", "h", "", "0", 2)}, []string{"a", "b"}},
		{[]compare.Column{column("1/a.vram", "end", "h", "x", "", 1), column("2/a.vram", "end", "h", "y", "", 2)}, []string{"x", "y"}},
		{[]compare.Column{column("1/a.vram", "end", "h1", "", "", 1), column("2/a.vram", "end", "h2", "", "", 1)}, []string{"h1", "h2"}},
		{[]compare.Column{column("a.vram", "5m", "h", "", "", 1), column("a.vram", "end", "h", "", "", 1)}, []string{"5m", "end"}},
		{[]compare.Column{column("a.vram", "end", "h", "", "", 1), column("a.vram", "end", "h", "", "", 2)}, []string{"python3 [1]", "python3 [2]"}},
		{[]compare.Column{column("1/a.vram", "end", "h", "", "", 1), column("2/a.vram", "end", "h", "", "", 1)}, []string{"1/a.vram", "2/a.vram"}},
		{[]compare.Column{column("a.vram", "end", "h", "", "", 1), column("a.vram", "end", "h", "", "", 1)}, []string{"1: a", "2: a"}},
		{[]compare.Column{column("rank0.vram", "end", "h", "x", "", 1), column("rank1.vram", "end", "h", "x", "", 1)}, []string{"rank0", "rank1"}},
		{[]compare.Column{column("\x1b.vram", "end", "\x1b", "", "\x1b", 1), column("b.vram", "end", "", "", "2", 1)}, []string{"", ""}},
	} {
		c := compare.New(x.columns)
		got := c.Names
		if !slices.Equal(got, x.want) && x.want[0] != "" {
			t.Errorf("%q, want %q", got, x.want)
		}
		if c.ByRank != (x.want[0] == "rank 0") && x.want[0] != "" {
			t.Errorf("%q are by rank: %v", got, c.ByRank)
		}
		if !reporttest.Printable(strings.Join(got, "")) || got[0] == got[1] {
			t.Errorf("%q", got)
		}
	}
}

func TestTheHolderOfWhatIsMoreIsNamed(t *testing.T) {
	var columns []compare.Column
	for i := range 4 {
		c := held("run.vram", map[string]int64{"train.py:8 step": 4 * gib})
		c.Process.Rank = string(rune('0' + i))
		c.Held[0].Keepers = []compare.Keeper{{Path: "model.weight", Bytes: 3 * gib}, {Path: "losses[*]", Bytes: gib / 4}}
		if i == 2 {
			c.Held[0].Bytes += 2 * gib
			c.Held[0].Keepers = []compare.Keeper{{Path: "model.weight", Bytes: 3 * gib}, {Path: "losses[*]", Bytes: 2 * gib}}
		}
		columns = append(columns, c)
	}
	c := compare.New(columns)
	if len(c.Odd) != 1 || len(c.Odd[0].Keepers) != 1 || c.Odd[0].Keepers[0] != (compare.Keeper{Path: "losses[*]", Bytes: 2 * gib}) {
		t.Errorf("odd: %+v", c.Odd)
	}
	columns[2].Held[0].Bytes = gib // it has less
	if c = compare.New(columns); c.Odd[0].Keepers[0].Path != "" {
		t.Errorf("what it lacks is kept by %+v", c.Odd[0].Keepers)
	}
}

func TestOnlyTheLargestOfManyProcessesAreCompared(t *testing.T) {
	s := reporttest.RanksSnapshot(300)
	list, others := compare.Users(s)
	if len(list) != 256 || others != 44 || list[0] != 3 || !slices.IsSorted(list) || list[255] != 299 {
		t.Errorf("%d processes and %d others, from %d to %d", len(list), others, list[0], list[len(list)-1])
	}
	if c := compare.NewColumn(s, reporttest.TorchStacks()); c.All != 300 {
		t.Errorf("%d processes in one column", c.All)
	}
}

func BenchmarkCompare(b *testing.B) {
	s := reporttest.RanksSnapshot(256)
	list, _ := compare.Users(s)
	for b.Loop() {
		compare.New(compare.NewColumns(s, reporttest.TorchStacks(), list))
	}
}
