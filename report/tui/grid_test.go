// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// hostile are names that a traced process may choose.
var hostile = []string{
	"\x1b[31mred\x1b[2J", "a\nb\r\tc", "\u202eright to left\u2066", "e\u0301\u0301\u0301\u0301", "很很很很很很很很很很很很很很", "👩‍👩‍👧‍👦👩‍🚀", "🇩🇪🇫🇷🇩", "❤️☎️", "\u0600\u0601ن",
	"\u200b\u200d\ufeff", "क्षि", "가각", strings.Repeat("x", 5000), "\x00\xff\xfe", "\u0301combining first", "ﷺ", "\u1100\u1160\u11a8", "", " ", "~~~\x9b31m", "꧅", "𒐫",
}

func hostileMoment() Moment {
	s := reporttest.Snapshot()
	stacks := reporttest.StackMap{}
	for id, list := range reporttest.Stacks() {
		for i, f := range list {
			name := hostile[(int(id)*7+i)%len(hostile)]
			f.Function = name
			if f.Python {
				f.File = "/" + hostile[(int(id)*5+i)%len(hostile)] + "/" + name + ".py"
			}
			if f.Mapping != nil {
				f.Mapping = &callstack.Mapping{Path: "/lib/" + name}
			}
			stacks[id] = append(stacks[id], f)
		}
	}
	for i := range 3 * len(hostile) {
		name := hostile[i%len(hostile)]
		s.Processes = append(s.Processes, ledger.Process{
			PID: uint32(10000 + i), Comm: name, Begin: s.Begin, User: uint32(i + 1),
			Workload: ledger.Workload{Pod: name, Namespace: name, Rank: "3", WorldSize: "8", Job: name},
		})
		s.Sites = append(s.Sites, ledger.Site{Process: len(s.Processes) - 1, Stack: uint64(1 + i%4), API: name, Kind: ledger.Device, LiveBytes: uint64(i) << 20, LiveObjects: 3, AllocObjects: 3, Growth: 1 << 20})
	}
	for i := range s.GPUs {
		s.GPUs[i].Name = hostile[i]
	}
	s.Host, s.Warnings = hostile[4], hostile
	return Moment{
		Snapshot: s, Stacks: stacks, Judged: Judge(s, stacks), Note: hostile[0] + hostile[2], Speed: 12.5,
		OOMs: []report.OOM{{PID: 4242, Time: s.End - reporttest.Second, Size: 2 << 30, Stack: 3, API: hostile[0]}},
	}
}

var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// checkGrid tests that a screen keeps within its terminal, by each measure of width, and has no
// control characters but those of styles.
func checkGrid(t *testing.T, m *Model, what string) {
	t.Helper()
	content := m.View().Content
	lines := strings.Split(content, "\n")
	if len(lines) > m.height {
		t.Errorf("%s at %dx%d: %d lines", what, m.width, m.height, len(lines))
	}
	for i, line := range lines {
		bare := sgr.ReplaceAllString(line, "")
		if n := max(format.Width(bare), ansi.StringWidth(bare), ansi.StringWidthWc(bare)); n > m.width {
			t.Errorf("%s at %dx%d: line %d has %d columns: %q", what, m.width, m.height, i, n, bare)
		}
		if !reporttest.Printable(bare) {
			t.Errorf("%s at %dx%d: line %d has control characters: %q", what, m.width, m.height, i, bare)
		}
	}
}

// screensOf shows each view and page of a model.
func screensOf(m *Model, show func(what string)) {
	for _, v := range []string{"1", "2", "3", "4"} {
		press(m, v)
		show("view " + v)
	}
	press(m, "3", "t")
	show("list of lines")
	press(m, "m")
	show("merged lines")
	press(m, "j", "enter")
	show("stack")
	press(m, "esc", "t", "end", "enter")
	show("stack of a branch")
	press(m, "esc", "d")
	show("doubts")
	press(m, "d", "?")
	show("help")
	press(m, "?", "2", "/", "很", "e")
	show("filter")
	press(m, "esc", "m", "j", "j", "enter")
	show("lines of one")
	press(m, "4")
	show("timeline of one")
	press(m, "esc")
}

func TestScreensKeepWithinTheTerminal(t *testing.T) {
	x := hostileMoment()
	m := screenOf(20, 5, Options{}, over(x, 5)...)
	for width := 20; width <= 200; width += 9 {
		for _, height := range []int{5, 6, 7, 8, 9, 12, 17, 24, 41, 60} {
			m.Update(tea.WindowSizeMsg{Width: width, Height: height})
			screensOf(m, func(what string) { checkGrid(t, m, what) })
		}
	}
	for _, size := range [][2]int{{1, 1}, {3, 2}, {0, 0}, {19, 4}} {
		m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		screensOf(m, func(string) { m.View() }) // no panic
	}
}

func TestScreensOfAllSessionsKeepWithinTheTerminal(t *testing.T) {
	for name, x := range moments() {
		m := screenOf(20, 5, Options{}, over(x, 3)...)
		for _, size := range [][2]int{{20, 5}, {33, 9}, {40, 12}, {44, 20}, {80, 24}, {120, 40}, {200, 60}} {
			m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
			screensOf(m, func(what string) { checkGrid(t, m, name+" "+what) })
		}
	}
}

func TestOnceIsTextThatFits(t *testing.T) {
	list := moments()
	list["hostile"] = hostileMoment()
	for name, x := range list {
		for _, width := range []int{20, 40, 44, 80, 120, 200} {
			var out bytes.Buffer
			if err := Once(&out, x, Options{}, width); err != nil {
				t.Fatal(err)
			}
			reporttest.CheckText(t, out.String(), width)
			if width == 80 && name != "hostile" {
				reporttest.Golden(t, "once-"+name+".txt", out.Bytes())
			}
		}
	}
}
