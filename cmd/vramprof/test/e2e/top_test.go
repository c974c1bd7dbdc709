// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/pprof/profile"
)

// terminal is a terminal of tmux in which a program runs.
type terminal struct {
	t      *testing.T
	socket string
	env    []string
}

// openTerminal runs a line of the shell in a terminal, in a folder.
func openTerminal(t *testing.T, env []string, folder string, columns, rows int, line string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("no tmux")
	}
	x := &terminal{t: t, socket: filepath.Join(t.TempDir(), "tmux"), env: append(env, "LC_ALL=C.UTF-8", "TERM=screen-256color")}
	x.do("-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows), "-c", folder, "/bin/sh", "-c", line)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the terminal shows:\n%s", x.screen())
		}
		_ = x.command("kill-server").Run()
	})
	return x
}

func (x *terminal) command(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...)
	cmd.Env = x.env
	return cmd
}

func (x *terminal) do(args ...string) string {
	x.t.Helper()
	out, err := x.command(args...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %s: %v\n%s", args, err, out)
	}
	return string(out)
}

func (x *terminal) screen() string {
	out, _ := x.command("capture-pane", "-p").Output()
	return string(out)
}

// press types keys, by tmux's names.
func (x *terminal) press(keys ...string) {
	x.t.Helper()
	x.do(append([]string{"send-keys"}, keys...)...)
}

// shows waits until the screen has all the texts, and returns it.
func (x *terminal) shows(texts ...string) (screen string) {
	x.t.Helper()
	eventually(x.t, 30*time.Second, fmt.Sprintf("the screen shows %q", texts), func() bool {
		screen = x.screen()
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(screen, text) })
	})
	return screen
}

// hides waits until a text is gone from the screen. After Escape it must come before other keys, or
// the terminal reads them as one.
func (x *terminal) hides(text string) {
	x.t.Helper()
	eventually(x.t, 30*time.Second, fmt.Sprintf("%q is gone from the screen", text), func() bool { return !strings.Contains(x.screen(), text) })
}

// resize changes the size of the terminal, and waits until the title is in its first line and the
// keys are in its last.
func (x *terminal) resize(columns, rows int) {
	x.t.Helper()
	x.do("resize-window", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows))
	eventually(x.t, 60*time.Second, fmt.Sprintf("the screen fills %d × %d", columns, rows), func() bool {
		lines := strings.Split(strings.TrimSuffix(x.screen(), "\n"), "\n")
		return len(lines) == rows && strings.Contains(lines[0], "vramprof top") && strings.HasPrefix(lines[rows-1], "? help")
	})
}

var written = regexp.MustCompile(`vramprof-\S+`)

// TestTopInATerminal types what a user types, and reads the screen as a user does.
func TestTopInATerminal(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	training := startTarget(t, env, "/usr/bin/python3", filepath.Join(root, "testdata", "programs", "train.py"))
	program := renamed(t, dir.Program("alloc_c"), "\x1b[31m\n\u202ecomm", map[string]string{"level1": hostileName})
	hostile := startTarget(t, env, program, writeFile(t, "script", "ready\nwait\nrepeat 5\nmalloc a 1000000\nend\nprint done\nwait\n"))
	hostile.expectReady()
	folder := t.TempDir()
	x := openTerminal(t, env, folder, 80, 24, fmt.Sprintf("%s top --holders=off -p %d -p %d; echo exit $?; exec sleep 600", binary(t), training.pid(), hostile.pid()))

	x.shows("vramprof top", "2 processes", "[2 Processes]", fmt.Sprint(training.pid()), fmt.Sprint(hostile.pid()))
	hostile.next()
	hostile.expect("done")
	x.press("3")
	x.shows("[3 Lines]", "<module>")
	x.press("t")
	x.shows("train.py:81")
	x.press("/", "e", "v", "i", "l", "Enter")
	screen := x.shows("/evil/")
	if strings.Contains(screen, "train.py:81") || strings.Contains(screen, "owned\a") {
		t.Errorf("filtered by \"evil\", the screen is\n%s", screen)
	}
	for _, r := range screen {
		if r != '\n' && unicode.IsControl(r) || r == '\u202e' {
			t.Errorf("the screen has %U", r)
		}
	}
	x.press("Escape")
	x.hides("/evil/")
	x.press("/", "t", "r", "a", "i", "n", "_", "s", "t", "e", "p", "Enter")
	x.shows("/train_step/")
	x.press("Enter")
	x.shows("train.py:144", "cudaMalloc")
	x.press("Escape")
	x.hides("train.py:144")
	x.press("Escape")
	x.hides("/train_step/")
	x.press("4")
	x.shows("[4 Timeline]", "now")
	x.press("Space")
	x.shows("FROZEN")
	x.resize(40, 12)
	x.resize(120, 40)
	x.press("Space", "?")
	x.shows("freeze")
	x.press("?", "w")
	profilePath := filepath.Join(folder, written.FindString(x.shows("profile written: vramprof-")))
	x.press("s")
	capturePath := filepath.Join(folder, written.FindString(x.shows("until s: vramprof-")))
	x.press("s")
	x.shows("capture written: vramprof-")
	x.press("q")
	x.shows("Where the GPU's bytes are", "exit 0")

	file, err := os.Open(profilePath)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if p, err := profile.Parse(file); err != nil || len(p.Sample) == 0 {
		t.Errorf("the profile: %v", err)
	}
	r := openCapture(t, capturePath)
	if s := replay(t, r); len(s.Processes) != 2 || !r.Ended() {
		t.Errorf("the capture has %d processes, ended: %v", len(s.Processes), r.Ended())
	}
	if files, _ := os.ReadDir(folder); len(files) != 2 {
		t.Errorf("the folder has %v", files)
	}

	play := openTerminal(t, env, folder, 80, 24, fmt.Sprintf("%s top %s --speed 30; echo exit $?; exec sleep 600", binary(t), capturePath))
	play.shows("ENDED", "×30", "2 processes")
	play.press("q")
	play.shows("Where the GPU's bytes are", "exit 0")

	once := runCommand(t, env, "top", "--once", "-d", "1", "-p", fmt.Sprint(training.pid()))
	for _, text := range []string{"GPU 0", fmt.Sprint(training.pid()), "train.py:133", "other"} {
		if !strings.Contains(once, text) {
			t.Errorf("--once has no %q:\n%s", text, once)
		}
	}
	if strings.Contains(once, "\x1b") {
		t.Errorf("--once has control sequences: %q", once)
	}
}
