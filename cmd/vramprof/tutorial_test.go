// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheTutorialHasCommandsAndPicturesThatExist checks docs/tutorial.md, whose commands
// scripts/tutorial.sh runs, and whose pictures it takes.
func TestTheTutorialHasCommandsAndPicturesThatExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../scripts/tutorial.py")
	if err != nil {
		t.Fatal(err)
	}
	app := newApp(&program{}, io.Discard, io.Discard)
	commands := regexp.MustCompile(`(?m)^# vramprof (\S+)(.*)$`).FindAllStringSubmatch(string(page), -1)
	if len(commands) < 8 {
		t.Errorf("the tutorial has %d commands of vramprof", len(commands))
	}
	for _, m := range commands {
		c := app.Command(m[1])
		if c == nil {
			t.Errorf("%q: no such command", m[0])
			continue
		}
		var known []string
		for _, f := range c.Flags {
			known = append(known, f.Names()...)
		}
		for word := range strings.FieldsSeq(m[2]) {
			if name := strings.TrimLeft(word, "-"); name != word && !slices.Contains(known, name) {
				t.Errorf("%q: no flag %s", m[0], word)
			}
		}
	}
	files, err := filepath.Glob("../../docs/tutorial/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no pictures: %v", err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if !strings.Contains(string(page), "(tutorial/"+name+")") || !strings.Contains(string(script), `"`+name+`":`) {
			t.Errorf("%s is not in the tutorial, or not taken by its script", file)
		}
	}
}
