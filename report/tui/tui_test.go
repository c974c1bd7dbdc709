// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// moments are the sessions that screens are drawn of.
func moments() map[string]Moment {
	of := func(s *ledger.Snapshot, st callstack.Stacks) Moment {
		return Moment{Snapshot: s, Stacks: st, Judged: Judge(s, st)}
	}
	return map[string]Moment{
		"session": of(reporttest.Snapshot(), reporttest.Stacks()),
		"torch":   of(reporttest.TorchSnapshot(), reporttest.TorchStacks()),
		"kinds":   of(reporttest.KindsSnapshot(), reporttest.Stacks()),
		"oom":     of(reporttest.OOMSnapshot(), reporttest.Stacks()),
		"caches":  of(reporttest.Caches(), reporttest.StuckStacks()),
	}
}

// screenOf returns a screen of a size that has received moments.
func screenOf(width, height int, o Options, list ...Moment) *Model {
	m := New(o)
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	for _, x := range list {
		send(m, x)
	}
	return m
}

// send has the program's loop done by hand.
func send(m *Model, msg tea.Msg) {
	_, cmd := m.Update(msg)
	run(m, cmd)
}

func run(m *Model, cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case booksMsg, doneMsg:
		send(m, msg)
	}
}

// press types keys: "j", "enter", "pgdown".
func press(m *Model, keys ...string) {
	for _, k := range keys {
		send(m, keyOf(k))
	}
}

var special = map[string]rune{
	"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "up": tea.KeyUp, "down": tea.KeyDown, "left": tea.KeyLeft, "right": tea.KeyRight,
	"pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd, "backspace": tea.KeyBackspace,
}

func keyOf(name string) tea.KeyPressMsg {
	if code, ok := special[name]; ok {
		return tea.KeyPressMsg{Code: code}
	}
	if name == "space" {
		return tea.KeyPressMsg{Code: tea.KeySpace, Text: " "}
	}
	r := []rune(name)[0]
	return tea.KeyPressMsg{Code: r, Text: name}
}

// shownText returns the screen without styles.
func shownText(m *Model) string { return ansi.Strip(m.View().Content) }

func TestScreens(t *testing.T) {
	all := moments()
	for _, size := range [][2]int{{80, 24}, {120, 40}, {40, 12}} {
		for k, name := range []string{"gpus", "processes", "lines", "timeline"} {
			m := screenOf(size[0], size[1], Options{}, over(all["torch"], 30)...)
			press(m, fmt.Sprint(k+1))
			reporttest.Golden(t, fmt.Sprintf("%s-%dx%d.txt", name, size[0], size[1]), []byte(trimmed(shownText(m))))
		}
	}
}

func TestPagesAndColoursOfScreens(t *testing.T) {
	all := moments()
	m := screenOf(80, 40, Options{Flat: true}, all["session"])
	reporttest.Golden(t, "colours-80x40.txt", []byte(m.View().Content))
	press(m, "3", "enter")
	reporttest.Golden(t, "stack-80x40.txt", []byte(trimmed(shownText(m))))
	press(m, "esc", "d")
	reporttest.Golden(t, "doubts-80x40.txt", []byte(trimmed(shownText(m))))
	press(m, "d", "?")
	reporttest.Golden(t, "help-80x40.txt", []byte(trimmed(shownText(m))))
	m = screenOf(80, 24, Options{Flat: true}, over(all["torch"], 90)...)
	press(m, "enter", "4")
	reporttest.Golden(t, "timeline-one-80x24.txt", []byte(trimmed(shownText(m))))
	press(m, "3")
	reporttest.Golden(t, "list-80x24.txt", []byte(trimmed(shownText(m))))
}

// over returns the moments before one, a second apart: its memory has grown.
func over(x Moment, n int) []Moment {
	list := make([]Moment, n)
	for i := range list {
		s := *x.Snapshot
		back := uint64(n-1-i) * reporttest.Second
		s.End -= back
		s.Wall = s.Wall.Add(-nanoseconds(back))
		list[i] = x
		list[i].Snapshot = &s
		s.Balances = append([]ledger.Balance(nil), s.Balances...)
		s.Balances[0].Usage -= uint64(n-1-i) * 64 * reporttest.MiB
		s.Balances[0].Gap -= int64(n-1-i) * 64 * int64(reporttest.MiB)
	}
	return list
}

// trimmed cuts the blanks at the ends of lines, and ends the last one.
func trimmed(screen string) string {
	lines := strings.Split(screen, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// TestTheProcessViewHasCachesAndCounters: what PyTorch's cache is made of, and the counters of its
// allocator, at the widths that people use.
func TestTheProcessViewHasCachesAndCounters(t *testing.T) {
	for _, size := range [][2]int{{44, 30}, {80, 24}, {120, 40}} {
		m := screenOf(size[0], size[1], Options{}, moments()["caches"])
		press(m, "2")
		screen := trimmed(shownText(m))
		text := strings.Join(strings.Fields(screen), " ")
		for _, want := range []string{"can go back", "held by live tensors", "too small", "other streams", "pools", "peak 3.00 GiB of tensors", "2 retries", "1 out-of-memory error", "Rounding takes 40.0 MiB"} {
			if !strings.Contains(text, want) {
				t.Errorf("at %d columns %q is missing", size[0], want)
			}
		}
		reporttest.Golden(t, fmt.Sprintf("caches-%dx%d.txt", size[0], size[1]), []byte(screen))
	}
	m := screenOf(80, 12, Options{}, moments()["caches"]) // the lines come first
	press(m, "2")
	if screen := shownText(m); strings.Contains(screen, "held by live") || !strings.Contains(screen, "python3") {
		t.Errorf("with little room:\n%s", screen)
	}
}

// TestTheProcessOfATrainingShowsItsStep and, of a session, also when it allocates nothing.
func TestTheProcessOfATrainingShowsItsStep(t *testing.T) {
	s, st := reporttest.Explained(), reporttest.HeldStacks()
	m := screenOf(80, 40, Options{}, Moment{Snapshot: s, Stacks: st, Judged: Judge(s, st), Steps: reporttest.Steps(), Speed: 1})
	if text := shownText(m); !strings.Contains(text, "Now in step 55 of 57, in optimizer step") || !strings.Contains(text, "Steps: 57 steps of 1.0s (55.6 a minute), tensors grow 12.0 MiB a step") ||
		!strings.Contains(text, "Peak of tensors 36.7 GiB in step 41 of 57, in backward") {
		t.Error(text)
	}
	for height := 4; height < 40; height++ { // what is known of the steps leaves room for rows, or is not shown
		m := screenOf(80, height, Options{}, Moment{Snapshot: s, Stacks: st, Judged: Judge(s, st), Steps: reporttest.Steps(), Speed: 1})
		press(m, "2")
		checkGrid(t, m, "a training")
		if text := shownText(m); strings.Contains(text, "What it is for") && !strings.Contains(text, "O optimizer state") {
			t.Errorf("80x%d: no row below the heading of\n%s", height, text)
		}
	}
	later := *s // books of a running process are newer than its steps
	later.End += 600 * reporttest.Second
	m = screenOf(80, 40, Options{}, Moment{Snapshot: &later, Stacks: st, Judged: Judge(&later, st), Steps: reporttest.Steps()})
	if text := shownText(m); !strings.Contains(text, "Now in ") {
		t.Errorf("after the latest event: %s", text)
	}
}
