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

	"github.com/vramprof/vramprof/internal/realtorch"
)

// reported is a program of testdata/leaks/reported, with what its header expects of the output.
type reported struct {
	path    string
	expects map[string][]*regexp.Regexp // by the header's word
	env     []string
	target  *target
	session *session
	capture string
}

var expectation = regexp.MustCompile(`(?m)^# (says|advises|never): (.+)$`)

func readReported(t *testing.T, path string) *reported {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var sites []string // "SITE", its line, "SITE2", …
	for n, line := range strings.Split(string(text), "\n") {
		if strings.HasSuffix(line, "# site") {
			name := "SITE"
			if len(sites) > 0 {
				name = fmt.Sprint("SITE", len(sites)/2+1)
			}
			sites = append([]string{name, fmt.Sprintf(`\S*%s:%d`, regexp.QuoteMeta(filepath.Base(path)), n+1)}, sites...)
		}
	}
	r := &reported{path: path, expects: map[string][]*regexp.Regexp{}}
	names := strings.NewReplacer(sites...)
	for _, m := range expectation.FindAllStringSubmatch(string(text), -1) {
		r.expects[m[1]] = append(r.expects[m[1]], regexp.MustCompile(names.Replace(m[2])))
	}
	if len(r.expects["says"]) == 0 || len(r.expects["never"]) == 0 {
		t.Fatalf("%s expects too little", path)
	}
	return r
}

// TestReportedProgramsAreToldWhatIsTrue attaches to programs after public reports while they run,
// and compares the sentences with their headers: lines, holders, advice, and what must not be
// advised.
func TestReportedProgramsAreToldWhatIsTrue(t *testing.T) {
	setup(t)
	root := realtorch.Prepare(t)
	folder := realtorch.Script(filepath.Join("..", "leaks"))
	paths, err := filepath.Glob(filepath.Join(folder, "reported", "*.py"))
	if err != nil || len(paths) < 5 {
		t.Fatal(paths, err)
	}
	if os.Getenv("VRAMPROF_LONG") == "" {
		paths = slices.DeleteFunc(paths, func(path string) bool {
			text, err := os.ReadFile(path)
			return err == nil && strings.Contains(string(text), "\n# long: ")
		})
	}
	var list []*reported
	for some := range slices.Chunk(paths, 3) { // more at once would wait for processors, and so would the walks
		var together []*reported
		for _, path := range some {
			r := readReported(t, path)
			r.env = append(root.Env(t, 1, 16<<30), "PYTHONPATH="+realtorch.Script("site")+":"+folder, "COLUMNS=160")
			together = append(together, r)
		}
		recordReported(t, root, together)
		list = append(list, together...)
	}
	for _, r := range list {
		t.Run(filepath.Base(r.path), func(t *testing.T) {
			said := func(arguments ...string) string {
				cmd := exec.Command(binary(t), append(arguments, r.capture)...)
				cmd.Env, cmd.Stderr = r.env, os.Stderr
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%s: %v", arguments, err)
				}
				return string(out)
			}
			out := said("leaks") + said("explain")
			text := strings.Join(strings.Fields(out), " ")
			want := r.expects["says"]
			if strings.Contains(said("leaks", "--json"), "what keeps most of it grew by") {
				want = append(want, r.expects["advises"]...)
			} else if len(r.expects["advises"]) > 0 {
				t.Logf("no two walks saw the holder grow: its advice is not looked for")
			}
			for _, want := range want {
				if !want.MatchString(text) {
					t.Errorf("does not say %s", want)
				}
			}
			for _, not := range r.expects["never"] {
				if found := not.FindString(text); found != "" {
					t.Errorf("says %q, which matches %s", found, not)
				}
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}

// recordReported runs programs, and attaches to each for 12 s, which a verdict needs, and until two
// walks have ended.
func recordReported(t *testing.T, root realtorch.Root, list []*reported) {
	t.Helper()
	for _, r := range list {
		r.target = startCommand(t, root.Command(r.env, r.path, "--hold"))
	}
	for _, r := range list {
		r.target.expectReady()
	}
	time.Sleep(2 * time.Second) // so that each attach is late
	for _, r := range list {
		r.capture = filepath.Join(t.TempDir(), "run.vram")
		r.session = start(t, r.env, "record", "--holders=4s", "--holders-time=1m", "-p", fmt.Sprint(r.target.pid()), "-o", r.capture)
	}
	for _, r := range list {
		r.session.ready()
	}
	time.Sleep(12 * time.Second)
	for _, r := range list {
		walked := regexp.MustCompile(fmt.Sprintf(`walked process %d in \S+: it has`, r.target.pid()))
		eventually(t, 3*time.Minute, "two walks of "+r.path, func() bool {
			return len(walked.FindAllString(r.session.stderr.String(), 2)) == 2
		})
	}
	for _, r := range list {
		r.session.cmd.Process.Signal(os.Interrupt)
	}
	for _, r := range list {
		r.session.wait()
		r.target.kill() // the next ones need the processors
	}
}
