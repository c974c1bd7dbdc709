// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize"
)

func TestFilesWithoutNamesAreWarnedOfUpToALimit(t *testing.T) {
	s := newStacks()
	defer s.close()
	for i := range maxNameWarnings + 3 {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("lib%02d.so", i))
		if err := os.WriteFile(path, []byte("not ELF"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		s.symbols.AddFile(path, &symbolize.Mapping{Path: path}, f, "")
	}
	list := s.warnings()
	if len(list) != maxNameWarnings+1 || !strings.HasPrefix(list[0], "no names of lib00.so: ") ||
		list[maxNameWarnings] != "names of further files are incomplete: 3" {
		t.Errorf("got %d warnings:\n%s", len(list), strings.Join(list, "\n"))
	}
}
