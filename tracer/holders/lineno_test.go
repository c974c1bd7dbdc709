// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/holders/pythontest"
)

func TestLineOfAnInstruction(t *testing.T) {
	table := []byte{
		0x80 | 15<<3,   // unit 0: none
		0x80 | 1, 0x12, // units 1 and 2: short, the same line
		0x80 | 11<<3, 1, 2, // unit 3: one line on
		0x80 | 13<<3 | 7, 0x40 | 2, 1, // units 4 to 11: (2 + 64) / 2 = 33 lines on
		0x80 | 14<<3, 5, 0, 3, 4, // unit 12: 2 lines back
		0x80 | 12<<3, 1, // the end is missing
	}
	want := []int{0, 10, 10, 11, 44, 44, 44, 44, 44, 44, 44, 44, 42, 0, 0}
	for unit, line := range want {
		if got := lineOf(table, 10, uint64(unit)); got != line {
			t.Errorf("unit %d is at line %d, want %d", unit, got, line)
		}
	}
}

func FuzzLineOf(f *testing.F) {
	f.Add([]byte{0x80 | 14<<3, 5, 0, 3, 4, 0xf0, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f}, int64(10), uint64(1))
	f.Fuzz(func(t *testing.T, table []byte, first int64, unit uint64) {
		if line := lineOf(table, first, unit); line < 0 || line > 1<<30 {
			t.Errorf("line %d", line)
		}
	})
}

// TestTheLineThatIsExecuted: each function of a chain waits in a line that it knows, in a statement
// of some lines, behind many others, and far from its begin.
func TestTheLineThatIsExecuted(t *testing.T) {
	programs := pythontest.Programs(t)
	if len(programs) == 0 {
		t.Skip("no Python")
	}
	for _, program := range programs {
		t.Run(filepath.Base(program), func(t *testing.T) {
			p := pythontest.Start(t, exec.Command(program, waitingProgram(t)))
			c := peek.NewCopy(p, DefaultMemory)
			defer c.Close()
			if err := c.Take(context.Background()); err != nil {
				t.Fatal(err)
			}
			py, err := newPython(context.Background(), c)
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]int{}
			for _, interp := range py.interps {
				chains, _ := py.chains(interp, p)
				for _, chain := range chains {
					for _, f := range chain {
						found[f.function] = f.now
					}
				}
			}
			for name, line := range map[string]int{"inner": 6, "middle": 311, "outer": 314, "<module>": 316} {
				if py.l.minor < 11 {
					line = 0
				}
				if now, is := found[name]; !is || now != line {
					t.Errorf("%s is at line %d, want %d: %v", name, now, line, found)
				}
			}
		})
	}
}

// waitingProgram writes a program whose functions wait in known lines.
func waitingProgram(t *testing.T) string {
	text := "import sys\ndef inner(n):\n    print('ready', flush=True)\n    if n:\n        x = [i for i in range(3)]\n        sys.stdin.read()\n    return n\ndef middle(a, b):\n    x = 0\n"
	for i := range 300 {
		text += fmt.Sprintf("    x = a + %d if x else b\n", i)
	}
	text += "    return max(0,\n               inner(1),\n               a)\n" // lines 310 to 312
	text += "def outer():\n    return middle(1,\n                  2)\nouter()\n"
	// Calls are in the lines of their names.
	file := filepath.Join(t.TempDir(), "waiting.py")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
