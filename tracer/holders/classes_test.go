// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/holders/pythontest"
)

// TestTheCallOfAClassIsOneFrame: CPython 3.12 and later put a frame of their own below that of
// __init__, once they have specialized the call.
func TestTheCallOfAClassIsOneFrame(t *testing.T) {
	const text = `import sys
class Batch:
    def __init__(self, n):
        self.n = n
        if n == 99:
            print('ready', flush=True)
            sys.stdin.read()
def fill():
    batches = []
    for i in range(100):
        batch = Batch(i)
        batches.append(batch)
fill()
`
	programs := pythontest.Programs(t)
	if len(programs) == 0 {
		t.Skip("no Python")
	}
	file := filepath.Join(t.TempDir(), "classes.py")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		t.Run(filepath.Base(program), func(t *testing.T) {
			p := pythontest.Start(t, exec.Command(program, file))
			c := peek.NewCopy(p, DefaultMemory)
			defer c.Close()
			if err := c.Take(context.Background()); err != nil {
				t.Fatal(err)
			}
			py, err := newPython(context.Background(), c)
			if err != nil {
				t.Fatal(err)
			}
			for _, interp := range py.interps {
				chains, _ := py.chains(interp, p)
				for _, chain := range chains {
					var names []string
					for _, f := range chain {
						names = append(names, f.function)
					}
					if !slices.Equal(names, []string{"<module>", "fill", "__init__"}) && !slices.Equal(names, []string{"<module>", "fill", "Batch.__init__"}) {
						t.Errorf("frames %q", names)
					}
				}
			}
		})
	}
}
