// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/numa"
)

// TestStacksAreWholeAcrossMarkedPages: NUMA balancing takes the access rights of pages away. Outer
// frames lie on such pages, small and huge, while the program allocates.
func TestStacksAreWholeAcrossMarkedPages(t *testing.T) {
	if _, err := numa.Prepare(os.DirFS("/"), runtime.GOARCH); err != nil {
		t.Skip(err)
	}
	const calls = 50
	for _, read := range []bool{false, true} {
		t.Run(fmt.Sprintf("read=%v", read), func(t *testing.T) {
			m := newMachine(t, 1)
			name := m.program("marked_c")
			m.trace(func(c *Config) { c.marked = read })
			p := m.start(nil, name, strconv.Itoa(calls))
			p.ready()
			m.snapshot()
			p.next()
			huge, _ := p.out.ReadString('\n')
			p.expect("done")
			s := m.snapshot()
			var small, large, others uint64
			for i := range s.Sites {
				x := &s.Sites[i]
				if s.Processes[x.Process].PID != p.pid() {
					continue
				}
				var names []string
				for _, f := range m.Stack(x.Stack) {
					names = append(names, f.Function)
				}
				switch text := strings.Join(names, " ") + " "; {
				case strings.Contains(text, " step_down level level level level level level small_pages call main "):
					small += x.AllocObjects
				case strings.Contains(text, " step_down level level level level level level huge_page call main "):
					large += x.AllocObjects
				default:
					others += x.AllocObjects
				}
			}
			want := [3]uint64{0, 0, 2 * calls}
			if read {
				want = [3]uint64{calls, calls, 0}
				checkLosses(t, s)
			}
			if got := [3]uint64{small, large, others}; got != want {
				t.Errorf("whole stacks below small pages, below a huge page, and others: %v, want %v (%s)", got, want, strings.TrimSpace(huge))
			}
			if !strings.HasPrefix(huge, "1 ") {
				t.Log("this machine gave no huge page")
			}
			p.end()
		})
	}
}
