// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// heldSums sums all sample types by everything in a sample but its holder.
func heldSums(t *testing.T, s *ledger.Snapshot) map[string][8]int64 {
	sums := map[string][8]int64{}
	for _, x := range parsed(t, s, reporttest.HeldStacks()).Sample {
		label, stack := maps.Clone(x.Label), ""
		delete(label, "holder")
		for _, l := range x.Location {
			stack = l.Line[0].Function.Name + ";" + stack
		}
		if root, _, ok := strings.Cut(stack, ";"); ok && root == report.MarkOlder {
			stack = root
		}
		key := fmt.Sprint(strings.TrimSuffix(stack, ";"), label, x.NumLabel)
		sum := sums[key]
		for i, n := range x.Value {
			sum[i] += n
		}
		sums[key] = sum
	}
	return sums
}

func TestHoldersChangeNoSum(t *testing.T) {
	s := reporttest.Held()
	with := heldSums(t, s)
	s.Walks = nil
	if without := heldSums(t, s); !maps.Equal(with, without) {
		t.Errorf("with holders the sums are\n%v\nwithout\n%v", with, without)
	}
}

func TestEachByteOfATensorHasAHolder(t *testing.T) {
	sums := map[string]int64{}
	for _, x := range parsed(t, reporttest.Held(), reporttest.HeldStacks()).Sample {
		holder, plane := strings.Join(x.Label["holder"], ","), x.Label["plane"][0]
		switch {
		case plane == "tensor" && x.Value[3] != 0 && holder == "", x.Value[0] != 0 && holder != "", plane == "cache" && holder != "":
			t.Errorf("plane %s, holder %q: %v", plane, holder, x.Value)
		case x.Value[3] < 0 && holder != "":
			t.Errorf("%s has %d bytes", holder, x.Value[3])
		}
		sums[holder] += x.Value[3]
		if root := x.Location[len(x.Location)-1].Line[0].Function.Name; root == report.MarkOlder && strings.Contains(holder, "exp_avg'") {
			var path []string
			for _, l := range x.Location {
				path = append(path, l.Line[0].Function.Name)
			}
			if got := strings.Join(path, " < "); got != "['exp_avg'] < state[*] < optimizer < __main__ < "+report.MarkOlder {
				t.Errorf("stack is %s", got)
			}
		}
	}
	// the 256 MiB that were freed come off what has no holder
	if got := sums["model.layers.*.weight"] >> 20; got != 14*1024 || sums["pool.buffer"] != 1<<30 {
		t.Errorf("sums are %v", sums)
	}
}

func TestPortionsAddUp(t *testing.T) {
	for _, c := range [][]int64{{10, 1, 1, 1}, {0, 5, 5}, {1, 1 << 62, 1 << 61}, {1 << 62, 1 << 62, 1 << 61, 1}, {7, 0, 3, 0}} {
		objects, bytes := c[0], int64(0)
		for _, n := range c[1:] {
			bytes += n
		}
		for _, n := range c[1:] {
			part := portion(objects, n, bytes)
			if part < 0 || part > objects {
				t.Errorf("%v: %d of %d", c, part, objects)
			}
			objects, bytes = objects-part, bytes-n
		}
		if objects != 0 {
			t.Errorf("%v: %d are left", c, objects)
		}
	}
}

func TestPprofOfHolders(t *testing.T) {
	pprof, write := pprofOf(t, reporttest.HeldStacks())
	b := write("held.pb.gz", reporttest.Held())
	for _, c := range []pprofCase{
		{"by holder", []string{"-top", "-nodefraction=0", "-unit=mb", "-tagroot=holder", b},
			[]string{"14336MB 20.01%  model.layers.*.weight\n", "6162.76MB  8.60%  local ”trainer”.history[*] of main() (train.py:7)", "256MB  0.36%  no holder found",
				"accounting for 71632MB, 100% of 71632MB", "28672MB 40.03%  state[*]", "holders of python3 [4242] at 58s: 63.0 GiB of 63.8 GiB"}, nil},
		{"tags", []string{"-tags", "-unit=mb", b}, []string{"holder: Total 65208MB of 71632MB", "1024MB ( 1.43%): pool.buffer"}, nil},
		{"one holder", []string{"-top", "-unit=mb", "-tagfocus=holder=history", b}, []string{"accounting for 6162.76MB", "Trainer.step", "main() (train.py:7)"}, []string{"optimizer"}},
		{"the path of older memory", []string{"-traces", "-unit=mb", b},
			[]string{"weight\n             layers.*\n             model\n             __main__\n             " + report.MarkOlder}, nil},
		{"graph", []string{"-dot", b}, []string{"exp_avg_sq"}, nil},
	} {
		c.run(t, pprof)
	}
}

// TestADiffNamesWhoKeepsMore: between the sessions, a list kept 1 GiB more, and a cache was freed.
func TestADiffNamesWhoKeepsMore(t *testing.T) {
	st, a, b := reporttest.HeldStacks(), reporttest.Held(), reporttest.Held()
	x := &b.Sites[slices.IndexFunc(b.Sites, func(x ledger.Site) bool { return x.Kind == ledger.Tensor && len(x.Holders) == 2 })]
	x.LiveBytes += reporttest.GiB
	x.Holders = []ledger.SiteHolder{{Holder: x.Holders[0].Holder, Bytes: x.Holders[0].Bytes + reporttest.GiB}}
	for i := range b.Tensors {
		b.Tensors[i].LiveBytes += reporttest.GiB
	}
	d := Diff(New(a, st), New(b, st))
	if len(d.Holders) != 3 || d.Holders[0].Holder != `local "trainer".history[*] of main() (train.py:7)` || d.Holders[0].After-d.Holders[0].Before != 1<<30 || d.Holders[1].After != 0 || d.Holders[2].Holder != report.NoHolder {
		t.Errorf("holders are %+v", d.Holders)
	}
	for _, width := range []int{44, 80, 120} {
		var page bytes.Buffer
		if err := text.WriteDiff(&page, d, [2]string{"a.vram", "b.vram"}, report.Options{}, text.Screen{Width: width}); err != nil {
			t.Fatal(err)
		}
		reporttest.CheckText(t, page.String(), width)
		reporttest.Golden(t, fmt.Sprintf("diff-held%d.txt", width), page.Bytes())
	}
	if d := Diff(New(a, st), New(a, st)); len(d.Holders) != 0 || !d.Known[0] || !d.Known[1] {
		t.Errorf("a session differs from itself: %+v", d.Holders)
	}
	b.Walks = nil
	var page bytes.Buffer
	if err := text.WriteDiff(&page, Diff(New(a, st), New(b, st)), [2]string{"a.vram", "b.vram"}, report.Options{}, text.Screen{}); err != nil || !strings.Contains(page.String(), "Holders are not compared: b.vram has none") {
		t.Errorf("%v: %s", err, page.String())
	}
}
