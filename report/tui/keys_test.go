// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"errors"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func torchScreen(t *testing.T) *Model {
	t.Helper()
	return screenOf(120, 40, Options{}, over(moments()["torch"], 10)...)
}

// lineAt returns the first line of a screen that has a text, "" if none has.
func lineAt(m *Model, text string) string {
	for line := range strings.Lines(shownText(m)) {
		if strings.Contains(line, text) {
			return strings.TrimRight(line, " \n")
		}
	}
	return ""
}

func wantText(t *testing.T, m *Model, what string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if lineAt(m, text) == "" {
			t.Errorf("%s: no %q on the screen:\n%s", what, text, shownText(m))
		}
	}
}

// processAt returns the process of the cursor.
func processAt(m *Model) *process {
	m.rows()
	return m.views.processes.atCursor()
}

func TestQAndControlCQuit(t *testing.T) {
	for _, k := range []tea.KeyPressMsg{keyOf("q"), {Code: 'c', Mod: tea.ModCtrl}} {
		for _, typing := range []bool{false, k.Mod != 0} {
			m := torchScreen(t)
			if typing {
				press(m, "/")
			}
			_, cmd := m.Update(k)
			if cmd == nil {
				t.Fatalf("%v does nothing", k)
			}
			if _, quits := cmd().(tea.QuitMsg); !quits {
				t.Errorf("%v does not quit", k)
			}
		}
	}
}

func TestDigitsAndTabSwitchViews(t *testing.T) {
	m := torchScreen(t)
	for key, name := range map[string]string{"1": "[1 GPUs]", "2": "[2 Processes]", "3": "[3 Lines]", "4": "[4 Timeline]"} {
		press(m, key)
		wantText(t, m, "key "+key, name)
	}
	press(m, "1", "tab")
	wantText(t, m, "Tab", "[2 Processes]")
	m.Update(tea.KeyPressMsg{Code: tea.KeyTab, Mod: tea.ModShift})
	wantText(t, m, "Shift-Tab", "[1 GPUs]")
}

func TestEnterOpensAndEscGoesBack(t *testing.T) {
	m := torchScreen(t)
	press(m, "j", "enter")
	wantText(t, m, "Enter on the second process", "of python3 [4243]")
	if lineAt(m, "Adam.init_state") != "" {
		t.Error("lines of another process are shown")
	}
	press(m, "t", "enter")
	wantText(t, m, "Enter on a line", "tensors on cuda:1", "Block.forward", "at::native::linear", "__libc_start_call_main")
	press(m, "esc")
	wantText(t, m, "Esc from the stack", "[3 Lines]", "of python3 [4243]")
	press(m, "esc")
	wantText(t, m, "Esc from the lines", "[2 Processes]")
	press(m, "1", "j", "enter")
	wantText(t, m, "Enter on a GPU", "on GPU 1", "serve")
	if strings.Contains(lineAt(m, "GPU     pid"), "python3 [4242]") || lineAt(m, " 4242 ") != "" {
		t.Error("a process of another GPU is shown")
	}
	press(m, "esc")
	wantText(t, m, "Esc from the processes of a GPU", "[1 GPUs]")
}

func TestStacksOfALineAreTurned(t *testing.T) {
	m := screenOf(100, 40, Options{Flat: true}, moments()["oom"])
	press(m, "3", "enter")
	wantText(t, m, "the first stack", "Stack 1 of 2", "tensors on cpu")
	press(m, "n")
	wantText(t, m, "n", "Stack 2 of 2", "pinned host memory")
	press(m, "n")
	wantText(t, m, "n at the end", "Stack 1 of 2")
	press(m, "p")
	wantText(t, m, "p", "Stack 2 of 2")
}

func TestArrowsPagesAndEndsMoveTheCursor(t *testing.T) {
	m := torchScreen(t)
	press(m, "3")
	n := m.rows()
	for _, step := range []struct {
		key string
		at  int
	}{{"j", 1}, {"down", 2}, {"k", 1}, {"up", 0}, {"up", 0}, {"end", n - 1}, {"down", n - 1}, {"home", 0}, {"G", n - 1}, {"g", 0}, {"pgdown", min(n-1, m.frame().bodyRows()-1)}, {"pgup", 0}} {
		press(m, step.key)
		if at := m.views.lines.cursor.at; at != step.at {
			t.Errorf("after %s the cursor is at %d, want %d", step.key, at, step.at)
		}
	}
}

func TestTheCursorStaysWithItsRow(t *testing.T) {
	x := moments()["torch"]
	m := screenOf(120, 40, Options{}, x)
	press(m, "j", "j")
	if p := processAt(m); p.command != "serve" {
		t.Fatalf("the cursor is at %s", p.command)
	}
	press(m, "r") // serve comes first
	if p := processAt(m); p.command != "serve" {
		t.Errorf("in reversed order the cursor is at %s", p.command)
	}
	send(m, x)
	if p := processAt(m); p.command != "serve" {
		t.Errorf("in the next moment the cursor is at %s", p.command)
	}
}

func TestFilterByRegularExpressionOrText(t *testing.T) {
	m := torchScreen(t)
	for _, c := range []struct {
		view, text string
		with, no   string
	}{
		{"2", "^serv", "serve", " 4242 "},
		{"2", "4243", "4243", "serve"},
		{"2", "serve.py", "serve", " 4242 "}, // a file of the process
		{"3", "optim", "optim.py:31 Adam.init_state", "dist.py"},
		{"3", "ADAM\\.", "Adam.init_state", "dist.py"},
		{"3", "adam.(", "nothing matches /adam.(/", "Adam"},
		{"4", "4243", "python3 [4243]", "serve [5000]"},
	} {
		press(m, c.view, "/")
		press(m, strings.Split(c.text, "")...)
		press(m, "enter")
		wantText(t, m, "filter "+c.text, c.with)
		if line := lineAt(m, c.no); line != "" {
			t.Errorf("filter %s shows %q", c.text, line)
		}
		press(m, "esc")
	}
}

func TestKeysOfTheFilterAreText(t *testing.T) {
	m := torchScreen(t)
	press(m, "/", "q", "?", "3")
	if m.view != viewProcesses || m.prompt.filter.text != "q?3" {
		t.Errorf("view %d, filter %q", m.view, m.prompt.filter.text)
	}
	press(m, "backspace", "backspace")
	if m.prompt.filter.text != "q" {
		t.Errorf("filter %q", m.prompt.filter.text)
	}
	press(m, "esc")
	if m.prompt.filter.text != "" || m.prompt.typing {
		t.Error("Esc does not clear the filter")
	}
}

func TestSortByAnyColumn(t *testing.T) {
	m := torchScreen(t)
	press(m, "3", "t")
	seen := map[string]bool{}
	for range 20 {
		press(m, "<")
	}
	for range 20 {
		seen[m.views.lines.by] = true
		wantText(t, m, "sorted by "+m.views.lines.by, "▼")
		press(m, ">")
	}
	for _, name := range namesOf(fit(m.views.lines.columns(m.scene()), 120)) {
		if !seen[name] {
			t.Errorf("lines cannot be sorted by %s", name)
		}
	}
	press(m, "2", "<", "<", "<", "<")
	if p := processAt(m); m.views.processes.by != "pid" && p == nil {
		t.Errorf("sorted by %s", m.views.processes.by)
	}
	first := m.views.processes.rows[0].pid
	press(m, "r")
	if m.rows(); m.views.processes.rows[0].pid == first {
		t.Error("r does not reverse the order")
	}
	wantText(t, m, "reversed", "▲")
}

func TestSortOptionIsAColumn(t *testing.T) {
	for _, name := range Columns() {
		m := screenOf(200, 50, Options{Sort: name}, moments()["torch"])
		if m.views.gpus.by != name && m.views.processes.by != name && m.views.lines.by != name {
			t.Errorf("no view is sorted by %s", name)
		}
	}
}

func TestSpaceFreezesTheDisplay(t *testing.T) {
	list := over(moments()["torch"], 10)
	m := screenOf(120, 40, Options{}, list[:5]...)
	press(m, "space")
	frozen := shownText(m)
	wantText(t, m, "frozen", "FROZEN")
	for _, x := range list[5:] {
		send(m, x)
	}
	if now := shownText(m); now != frozen {
		t.Error("a frozen screen changes")
	}
	if n := len(m.series.times); n != 10 {
		t.Errorf("the timeline has %d moments, want all 10", n)
	}
	press(m, "space")
	wantText(t, m, "thawed", "37.0 GiB")
	if lineAt(m, "FROZEN") != "" {
		t.Error("still frozen")
	}
}

func TestTreeFoldsAndUnfolds(t *testing.T) {
	m := torchScreen(t)
	press(m, "3")
	n := m.rows()
	press(m, "left")
	if m.rows() >= n || lineAt(m, "▸ python3 [4242]") == "" {
		t.Errorf("%d rows of %d after folding:\n%s", m.rows(), n, shownText(m))
	}
	press(m, "right")
	if m.rows() != n {
		t.Errorf("%d rows of %d after unfolding", m.rows(), n)
	}
	press(m, "j", "j", "h", "h")
	if at := m.views.lines.cursor.at; at != 0 {
		t.Errorf("a folded branch goes to its parent: cursor at %d", at)
	}
	press(m, "t")
	if lineAt(m, "▾") != "" {
		t.Error("t does not show a list")
	}
}

func TestMergeSumsTheSameLineOfAllProcesses(t *testing.T) {
	m := screenOf(140, 40, Options{Flat: true}, moments()["torch"])
	press(m, "3")
	before := m.rows()
	press(m, "m")
	if m.rows() >= before {
		t.Errorf("%d rows merged, %d before", m.rows(), before)
	}
	wantText(t, m, "merged", "2 processes")
	if line := lineAt(m, "2 processes"); !strings.Contains(line, "13.1 GiB") { // 9.08 of one, 4.00 of the other
		t.Errorf("sum of two processes: %s", line)
	}
}

func TestWWritesWhatIsShown(t *testing.T) {
	list := over(moments()["torch"], 6)
	var written []*ledger.Snapshot
	fail := false
	o := Options{Profile: func(s *ledger.Snapshot) (string, error) {
		written = append(written, s)
		if fail {
			return "", errors.New("open /x\x1b[31m: permission denied")
		}
		return "/tmp/now.pb.gz", nil
	}}
	m := screenOf(120, 40, o, list[:3]...)
	press(m, "space")
	for _, x := range list[3:] {
		send(m, x)
	}
	press(m, "w")
	if len(written) != 1 || written[0] != list[2].Snapshot {
		t.Fatal("w does not write the frozen moment")
	}
	wantText(t, m, "w", "profile written: /tmp/now.pb.gz")
	fail = true
	press(m, "w")
	wantText(t, m, "w", "open /x[31m: permission denied")
	m = screenOf(120, 40, Options{}, list...)
	press(m, "w")
	wantText(t, m, "w without a writer", "no profile can be written here")
}

func TestSStartsAndEndsACapture(t *testing.T) {
	var calls []bool
	fail := true
	m := screenOf(120, 40, Options{Capture: func(on bool) (string, error) {
		calls = append(calls, on)
		if fail {
			return "", errors.New("no room")
		}
		return "/tmp/x.vram", nil
	}}, moments()["torch"])
	press(m, "s")
	wantText(t, m, "s that fails", "no room")
	fail = false
	press(m, "s")
	wantText(t, m, "s", "CAPTURE", "/tmp/x.vram")
	press(m, "s")
	wantText(t, m, "s again", "capture written: /tmp/x.vram")
	if len(calls) != 3 || !calls[0] || !calls[1] || calls[2] {
		t.Errorf("calls %v", calls)
	}
}

func TestHelpAndDoubtsCoverTheView(t *testing.T) {
	m := torchScreen(t)
	press(m, "?")
	wantText(t, m, "help", "freeze the display", "░ before")
	press(m, "?", "d")
	wantText(t, m, "doubts", "tensor sites are estimated", "peak 33.0 GiB of tensors")
	press(m, "esc")
	wantText(t, m, "back", "[2 Processes]", "growth/min")
}

func TestWhatHappenedLastStandsAtTheBottom(t *testing.T) {
	x := moments()["session"]
	m := screenOf(120, 24, Options{}, x)
	wantText(t, m, "a leak", "12:31:36 python3 [4242]: train.py:42 Trainer.step leaks: 1.95 GiB, +1.17 GiB/min")
	s := *x.Snapshot
	s.End += reporttest.Second
	s.Wall = s.Wall.Add(1e9)
	x.Snapshot = &s
	x.OOMs = []report.OOM{{PID: 4242, Time: s.End - reporttest.Second/2, Size: 2 << 30, Stack: 1, API: "torch"}}
	send(m, x)
	wantText(t, m, "an error", "12:31:36 python3 [4242] ran out of memory on cuda:0 (wanted 2.00 GiB) at train.py:42 Trainer.step")
	press(m, "4")
	wantText(t, m, "its mark", string(signOOM)+" out of memory")
	s2 := s
	s2.End += reporttest.Second
	s2.Processes = append([]ledger.Process(nil), s.Processes...)
	for i := range s2.Processes {
		if s2.Processes[i].PID == 4242 {
			s2.Processes[i].End = s2.End
		}
	}
	x.Snapshot, x.OOMs, x.Note = &s2, nil, ""
	send(m, x)
	wantText(t, m, "an end", "python3 [4242] ended")
}

func TestNothingIsLostWhileAMomentIsSummedUp(t *testing.T) {
	list := over(moments()["session"], 4)
	m := New(Options{})
	_, first := m.Update(list[0])
	for i, x := range list[1:] {
		x.OOMs = []report.OOM{{PID: 4242, Time: x.Snapshot.End, Size: uint64(i+1) << 30}}
		if _, cmd := m.Update(x); cmd != nil {
			t.Fatal("two moments are summed up at once")
		}
	}
	run(m, first)
	n := 0
	for _, h := range m.chronicle.list {
		n += btoi(h.sign == signOOM)
	}
	if n != 3 {
		t.Errorf("%d out-of-memory errors, want 3", n)
	}
	if m.shown.Snapshot != list[3].Snapshot {
		t.Error("the newest moment is not shown")
	}
}

func TestOnlyChangesAreDrawn(t *testing.T) {
	m := torchScreen(t)
	first := m.View()
	m.drawn += "x"
	if again := m.View(); again.Content != first.Content+"x" {
		t.Error("a screen without news is drawn again")
	}
	m.Update(tea.FocusMsg{})
	if again := m.View(); again.Content != first.Content+"x" {
		t.Error("a message that changes nothing has the screen drawn")
	}
	press(m, "j")
	if again := m.View(); strings.HasSuffix(again.Content, "x") {
		t.Error("a key does not have the screen drawn")
	}
}

func TestTheResultOfAKeyGivesWayToNews(t *testing.T) {
	list := over(moments()["torch"], 15)
	m := screenOf(120, 40, Options{}, list[0])
	press(m, "w")
	wantText(t, m, "w", "no profile can be written here")
	for _, x := range list[1:] {
		send(m, x)
	}
	if lineAt(m, "no profile") != "" {
		t.Error("the result of a key stays")
	}
	press(m, "w")
	x := list[14]
	s := *x.Snapshot
	s.End++
	x.Snapshot, x.Note = &s, "NVML is gone"
	send(m, x)
	wantText(t, m, "news", "NVML is gone")
}
