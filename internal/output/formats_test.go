// SPDX-License-Identifier: Apache-2.0

package output

import (
	"os"
	"strings"
	"testing"
)

func TestEveryFormatIsWrittenInOneWay(t *testing.T) {
	names, suffixes := map[string]bool{}, map[string]bool{}
	for _, f := range Exported {
		if f.About == "" || names[f.Name] || suffixes[f.Suffix] || !strings.HasPrefix(f.Suffix, ".") {
			t.Errorf("format %q: its name, suffix %q or words %q are missing, or another format has them", f.Name, f.Suffix, f.About)
		}
		if (f.Write == nil) == (f.Play == nil) {
			t.Errorf("format %s must have either Write or Play", f.Name)
		}
		names[f.Name], suffixes[f.Suffix] = true, true
	}
}

func TestEveryExportedFormatIsDocumented(t *testing.T) {
	for path, wants := range map[string]func(Format) string{
		"../../docs/formats.md": func(f Format) string { return "\n| `" + f.Name + "` |" },
		"../../README.md":       func(Format) string { return "for another tool: " + Exported.Choice() + ".\n" },
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range Exported {
			if want := wants(f); !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %q", path, want)
			}
		}
	}
}

func TestAnUnknownFormatIsAnErrorThatListsTheOthers(t *testing.T) {
	_, err := Exported.Find("svg")
	if want := `unknown format "svg" (formats: pprof, folded, chrome, torch)`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if got := Recorded.Choice(); got != "pprof or capture" {
		t.Errorf("a choice of two: %q", got)
	}
	if got := (Formats{Pprof}).Choice(); got != "pprof" {
		t.Errorf("a choice of one: %q", got)
	}
}
