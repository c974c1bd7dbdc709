// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/report/json"
)

// values are a sample's values: allocated objects and bytes, live objects and bytes.
type values [4]int64

// books sums samples by API, kind, device and stack.
type books map[string]values

func (b books) add(key string, v values) {
	sum := b[key]
	for i := range sum {
		sum[i] += v[i]
	}
	b[key] = sum
}

func (b books) total() (sum values) {
	for _, v := range b {
		for i := range sum {
			sum[i] += v[i]
		}
	}
	return sum
}

// compare fails the test for every row that differs.
func (b books) compare(t *testing.T, want books) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got, ok := b[key]; !ok {
			t.Errorf("missing: %s %v", key, want[key])
		} else if got != want[key] {
			t.Errorf("%s: got %v, want %v", key, got, want[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if _, ok := want[key]; !ok {
			t.Errorf("unexpected: %s %v", key, b[key])
		}
	}
}

// booksOf returns the books of a profile with whole stacks.
func booksOf(t *testing.T, p *profile.Profile) books {
	t.Helper()
	b := books{}
	for _, s := range p.Sample {
		stack := rootFirst(s)
		checkRoot(t, stack)
		key := strings.Join(append([]string{label(s, "api"), label(s, "kind"), label(s, "device")}, trim(stack)...), " ")
		b.add(key, values(s.Value))
	}
	return b
}

func label(s *profile.Sample, name string) string { return strings.Join(s.Label[name], ",") }

// rootFirst returns the frames of a sample: "name", or "name file.py:12" for Python. The last is
// the traced call, also of stacks that end at the code above it.
func rootFirst(s *profile.Sample) []string {
	var names []string
	for i := len(s.Location) - 1; i >= 0; i-- {
		l := s.Location[i]
		for k := len(l.Line) - 1; k >= 0; k-- {
			f := l.Line[k].Function
			name := f.Name
			switch {
			case l.Mapping != nil && l.Mapping.File == "[python]":
				name = fmt.Sprintf("%s %s:%d", f.Name, path.Base(f.Filename), l.Line[k].Line)
			case l.Mapping != nil && isC(l.Mapping.File):
				name = "libc"
			}
			names = append(names, name)
		}
	}
	if label(s, "callee") != "" {
		names = append(names, label(s, "api"))
	}
	return names
}

func isC(file string) bool {
	base := path.Base(file)
	return strings.HasPrefix(base, "libc.so.") || strings.HasPrefix(base, "libpthread")
}

// checkRoot checks that a stack begins where a thread begins.
func checkRoot(t *testing.T, stack []string) {
	t.Helper()
	for _, name := range stack {
		if strings.HasPrefix(name, "[") && !strings.HasPrefix(name, "[[") {
			t.Errorf("a stack is not whole: %q", stack)
			return
		}
	}
	if len(stack) == 0 || stack[0] != "libc" && !strings.HasSuffix(stack[0], "_start") && !strings.Contains(stack[0], "+0x") {
		t.Errorf("a stack does not begin at the root: %q", stack)
	}
}

// trim removes the frames before main or before a thread's function.
func trim(stack []string) []string {
	for len(stack) > 0 && (stack[0] == "libc" || stack[0] == "_start") {
		stack = stack[1:]
	}
	return stack
}

// key returns the row's name for an operation of alloc_c, in a thread whose stack begins with
// first.
func key(api, kind, device, first, op string) string {
	return strings.Join([]string{api, kind, device, first, "run_script", "op_" + op, "level3", "level2", "level1", api}, " ")
}

// checkWhole fails unless every event was booked with a whole stack.
func checkWhole(t *testing.T, r *json.LeaksReport) {
	t.Helper()
	l := r.Losses
	var cut uint64
	for _, n := range l.Truncated {
		cut += n
	}
	if l.LostEvents != 0 || l.WithoutStack != 0 || cut != 0 || l.Torn != 0 || l.Evicted != 0 {
		t.Errorf("lost %d, without stack %d, truncated %v, torn %d, evicted %d of %d events and %d stacks, want none",
			l.LostEvents, l.WithoutStack, l.Truncated, l.Torn, l.Evicted, l.Events, l.Stacks)
	}
}

func checkNoLosses(t *testing.T, r *json.LeaksReport) {
	t.Helper()
	checkWhole(t, r)
	if r.Losses.UnmatchedFrees != 0 || r.Losses.ReusedAddresses != 0 {
		t.Errorf("%d unmatched frees, %d reused addresses, want none", r.Losses.UnmatchedFrees, r.Losses.ReusedAddresses)
	}
}
