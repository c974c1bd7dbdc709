// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
)

func FuzzNamesHaveOneWidth(f *testing.F) {
	for _, name := range hostile {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for _, got := range []string{tidy(name), tidyPath(name)} {
			if !agreed(got) || !reporttest.Printable(got) || len(got) > maxName+len("…") {
				t.Errorf("%q became %q", name, got)
			}
		}
	})
}

func TestNamesStayAsTheyAre(t *testing.T) {
	for name, want := range map[string]string{
		"train.py": "train.py", "很很很": "很很很", "Größe": "Größe", "e\u0301": "e\u0301", "\x1b[31mred": "[31mred", "👩‍🚀 x": "👩🚀 x", "❤️x": "??x", "": "",
	} {
		if got := tidy(name); got != want {
			t.Errorf("tidy(%q) = %q, want %q", name, got, want)
		}
	}
	for file, want := range map[string]string{
		"/home/ada/llm/train.py": "train.py", "/home/ada/llm/model/__init__.py": "model/__init__.py", "train.py": "train.py", "": "", "<string>": "<string>",
	} {
		if got := shortFile(file); got != want {
			t.Errorf("shortFile(%q) = %q, want %q", file, got, want)
		}
	}
}
