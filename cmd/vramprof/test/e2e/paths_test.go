// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// The tracer caches walks. Here, many calls have the same innermost frames at the same stack
// addresses, and must not be confused.

func TestThousandSitesAreExact(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	const live, sites = 200000, 1000
	r := leaks(t, env, dir.Program("bench_c"), "cudart", "1", "0", "--live", fmt.Sprint(live), "--sites", fmt.Sprint(sites))
	checkNoLosses(t, r)
	if r.LiveCount != live || r.LiveBytes != live*512 || len(r.Sites) != sites {
		t.Errorf("%d live, %d bytes, %d sites, want %d, %d, %d", r.LiveCount, r.LiveBytes, len(r.Sites), live, live*512, sites)
	}
	seen := map[string]bool{}
	for _, s := range r.Sites {
		if s.LiveCount != live/sites || s.AllocatedCount != live/sites || s.LiveBytes != live/sites*512 {
			t.Fatalf("site %+v, want %d allocations", s, live/sites)
		}
		var stack []string
		for _, f := range s.Stack {
			stack = append(stack, f.Function)
		}
		seen[strings.Join(stack, " ")] = true
	}
	if len(seen) != sites {
		t.Errorf("%d distinct stacks, want %d", len(seen), sites)
	}
}

func TestPathsThatDifferOnlyNearMainAreDistinct(t *testing.T) {
	dir := setup(t)
	for _, depth := range []int{2, 15, 50, 90} {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			t.Parallel()
			env := dir.Env(t, 1, 8<<30)
			out := writeFile(t, "out", "")
			p := record(t, env, "sh", "-c", `exec "$0" "$@" >"`+out+`"`, dir.Program("paths_c"), fmt.Sprint(depth), "6000")
			want := books{}
			for _, line := range outputLines(t, out) {
				var root string
				var at, count int64
				if _, err := fmt.Sscanf(line, "%s %d %d", &root, &at, &count); err != nil {
					t.Fatalf("%v: %q", err, line)
				}
				want.add(fmt.Sprintf("run:%d %s deep×%d", at, root, depth), values{count, count, count, count})
			}
			got := books{}
			for _, s := range p.Sample {
				checkRoot(t, rootFirst(s))
				got.add(pathOf(s), values(s.Value))
			}
			got.compare(t, want)
		})
	}
}

// pathOf formats a stack of paths_c as "run:LINE root_N deep×DEPTH".
func pathOf(s *profile.Sample) string {
	var words []string
	deep := 0
	for i := len(s.Location) - 1; i >= 0; i-- {
		for _, line := range s.Location[i].Line {
			switch name := line.Function.Name; {
			case name == "run":
				words = append(words, fmt.Sprintf("run:%d", line.Line))
			case name == "deep":
				deep++
			case strings.HasPrefix(name, "root_"):
				words = append(words, name)
			}
		}
	}
	return strings.Join(append(words, fmt.Sprintf("deep×%d", deep)), " ")
}

func TestPythonPathsThatDifferOnlyInLinesAreDistinct(t *testing.T) {
	dir := setup(t)
	pythons := pythons()
	pythons["system"] = "/usr/bin/python3"
	for _, version := range []string{"system", "3.8", "3.10", "3.12", "3.13"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			if pythons[version] == "" {
				t.Skipf("no Python %s on this machine", version)
			}
			env := dir.Env(t, 1, 8<<30)
			out := writeFile(t, "out", "")
			p := record(t, env, "sh", "-c", `exec "$0" "$@" >"`+out+`"`, pythons[version], dir.Program("paths.py"), "3000")
			checkPythonStacks(t, p)
			want, got := books{}, books{}
			for _, line := range outputLines(t, out) {
				var row struct {
					Lines [2]int
					Count int64
				}
				if err := json.Unmarshal([]byte(line), &row); err != nil {
					t.Fatalf("%v: %q", err, line)
				}
				want.add(fmt.Sprintf("choose:%d middle:%d", row.Lines[0], row.Lines[1]), values{row.Count, row.Count, row.Count, row.Count})
			}
			for _, s := range p.Sample {
				got.add(pythonPathOf(s), values(s.Value))
			}
			got.compare(t, want)
		})
	}
}

// pythonPathOf formats the frames of paths.py that distinguish paths.
func pythonPathOf(s *profile.Sample) string {
	var words []string
	for i := len(s.Location) - 1; i >= 0; i-- {
		for _, line := range s.Location[i].Line {
			name := line.Function.Name
			if path.Base(line.Function.Filename) == "paths.py" && (name == "choose" || name == "middle") {
				words = append(words, fmt.Sprintf("%s:%d", name, line.Line))
			}
		}
	}
	return strings.Join(words, " ")
}

// outputLines reads what a program wrote to a file before "done".
func outputLines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, _, ok := strings.Cut(string(text), "done\n")
	if !ok {
		t.Fatalf("the program printed %q", text)
	}
	return strings.Split(strings.TrimSpace(before), "\n")
}
