// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/report/json"
)

// wellBehaved is a program beside a hostile one: its books must be exact.
type wellBehaved struct{ *target }

// startWellBehaved starts the program on a separate machine, with libraries that nothing else
// probes.
func startWellBehaved(t *testing.T, dir fakecuda.Dir) wellBehaved {
	t.Helper()
	env := append(dir.Env(t, 1, 8<<30), "LD_LIBRARY_PATH="+privateLibraries(t, dir))
	script := "malloc first 1\nready\nwait\nrepeat 300\nmalloc a 1000\nmalloc b 70000\nfree a\nfree b\nend\n" +
		"malloc c 5000\nprint half\nwait\nrepeat 300\nmalloc a 1000\nfree a\nend\nfree c\nmalloc d 123\nprint done\nwait\n"
	p := wellBehaved{startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script", script))}
	p.expectReady()
	return p
}

func (p wellBehaved) half() { p.t.Helper(); p.next(); p.expect("half") }
func (p wellBehaved) done() { p.t.Helper(); p.next(); p.expect("done") }

// check compares the program's part of a report with its operations, and checks that its stacks are
// whole.
func (p wellBehaved) check(r *json.LeaksReport) {
	p.t.Helper()
	var count, size uint64
	for i := range r.Sites {
		s := &r.Sites[i]
		if int(s.PID) != p.pid() {
			continue
		}
		count += s.LiveCount
		size += s.LiveBytes
		var names []string
		for _, f := range s.Stack {
			names = append(names, f.Function)
		}
		if stack := strings.Join(names, " "); !strings.HasPrefix(stack, "cudaMalloc level1 level2 level3 op_malloc run_script main") {
			p.t.Errorf("stack %s", stack)
		}
	}
	if count != 1 || size != 123 {
		p.t.Errorf("live %d bytes in %d, want 123 in 1", size, count)
	}
	for _, x := range r.Processes {
		if int(x.PID) != p.pid() {
			continue
		}
		if len(x.Totals) != 1 || x.Totals[0].AllocatedCount != 902 || x.Totals[0].AllocatedBytes != 300*71000+5000+300*1000+123 || x.Totals[0].LiveBytes != 123 {
			p.t.Errorf("totals %+v", x.Totals)
		}
		return
	}
	p.t.Errorf("process %d is not in the books", p.pid())
}

// printable fails on characters that must not reach a terminal.
func printable(t *testing.T, what, text string) {
	t.Helper()
	bad := func(r rune) bool {
		return r != '\n' && r != '\r' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	}
	if i := strings.IndexFunc(text, bad); i >= 0 || !utf8.ValidString(text) {
		t.Errorf("%s has %q", what, text[max(0, i-40):min(len(text), max(0, i)+40)])
	}
}

// hostileName contains escape sequences, a line break, and a bidirectional override.
const hostileName = "\x1b]0;owned\a\x1b[31m\n\u202eevil"

// renamed copies a program to a file with the given name, with renamed symbols.
func renamed(t *testing.T, program, name string, symbols map[string]string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), name)
	args := []string{program, to}
	for from, to := range symbols {
		args = append([]string{"--redefine-sym", from + "=" + to}, args...)
	}
	if out, err := exec.Command("objcopy", args...).CombinedOutput(); err != nil {
		t.Skipf("objcopy: %v %s", err, out)
	}
	return to
}

func TestHostileNamesAndArgumentsAreHarmless(t *testing.T) {
	dir := setup(t)
	program := renamed(t, dir.Program("alloc_c"), "\x1b[31m\n\u202ecomm", map[string]string{
		"level1": hostileName, "level2": strings.Repeat("N", 100_000), "level3": "</script><b>", "op_malloc": "_Z1f" + strings.Repeat("P", 8000) + "i",
	})
	env := dir.Env(t, 1, 8<<30)
	big := append([]string{}, env...)
	for i := range 11 { // as many arguments as Linux accepts
		big = append(big, fmt.Sprintf("HOSTILE_%d=%s", i, strings.Repeat("\x1b[31m", 25_000)))
	}
	big = append(big, "SLURM_JOB_NAME="+hostileName, "POD_NAME="+hostileName, "KUBERNETES_SERVICE_HOST=1", "RANK=1\x1b")
	script := writeFile(t, "script", "ready\nwait\nrepeat 5\nmalloc a 1000\nend\nprint done\nwait\n")
	p := startTarget(t, big, program, script, strings.Repeat("x", 120_000), strings.Repeat(hostileName, 3000), strings.Repeat("\x1b", 120_000))
	p.expectReady()
	good := startWellBehaved(t, dir)
	pids := []string{"-p", fmt.Sprint(p.pid()), "-p", fmt.Sprint(good.pid())}
	l := startLeaks(t, env, pids...).ready()
	page := filepath.Join(t.TempDir(), "run.vram")
	s := start(t, env, append([]string{"record", "-o", page}, pids...)...).ready()
	p.next()
	p.expect("done")
	good.half()
	good.done()
	ps := runCommand(t, env, "ps")
	r := l.stop().leaks()
	s.stop()
	p.end()
	good.end()

	good.check(r)
	checkNoLosses(t, r)
	var live uint64
	for _, x := range r.Sites {
		if int(x.PID) == p.pid() {
			live += x.LiveCount
			for _, f := range x.Stack {
				if len(f.Function) > 4096 {
					t.Errorf("a function's name has %d bytes", len(f.Function))
				}
			}
		}
	}
	if live != 5 {
		t.Errorf("the hostile process has %d allocations, want 5", live)
	}
	texts := map[string]string{"ps": ps, "compare": runCommand(t, env, "compare", page, page), "messages": l.stderr.String(), "messages of record": s.stderr.String(), "summary": s.stdout.String(), "JSON": l.stdout.String()}
	for _, format := range []string{"leaks", "tree", "table", "stats", "summary"} {
		if format == "leaks" {
			texts[format] = runCommand(t, env, "leaks", page)
			continue
		}
		texts[format] = runCommand(t, env, "report", "--view", format, page)
	}
	for what, text := range texts {
		printable(t, what, text)
		if len(text) > 1<<20 {
			t.Errorf("%s has %d bytes", what, len(text))
		}
	}
}

// runCommand runs vramprof to its end and returns its output.
func runCommand(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("vramprof %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
}

func sparse(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Skipf("no sparse file of %d bytes: %v", size, err)
	}
}
