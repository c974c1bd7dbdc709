// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func known(name string) bool {
	return slices.Contains([]string{"keep", "web.listen-address", "verbose"}, name)
}

func TestConfigurationsWithMistakesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"kep: 3m":              `unknown option "kep"`,
		"config: other.yml":    `unknown option "config"`,
		"keep: {a: 1}":         "neither a value nor a list",
		"keep: [[1]]":          "neither a value nor a list",
		"keep: 1m\nkeep: 2m":   "already set",
		"- keep":               "cannot unmarshal",
		"keep: &a [*a]":        "",
		"web.listen-address: ": "",
	} {
		_, err := parseConfig("serve.yml", []byte(text), known)
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzServeConfig(f *testing.F) {
	f.Add([]byte("keep: 30m\nweb.listen-address: [\":9836\", localhost:1]\nverbose: true\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		values, err := parseConfig("serve.yml", text, known)
		if err != nil {
			return
		}
		for name, list := range values {
			if name == "" || len(list) > len(text) {
				t.Errorf("%q: %d values of %d bytes", name, len(list), len(text))
			}
		}
	})
}

// TestAReloadForgetsAMistakeThatWasUndone: the file has the last word, and without one the default.
func TestAReloadForgetsAMistakeThatWasUndone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serve.yml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("keep: 1m\n")
	file, err := ReadConfig(path, known)
	if err != nil {
		t.Fatal(err)
	}
	file.Keep = "10m"
	s := &server{log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	s.keep.Store(int64(time.Minute))
	for _, step := range []struct {
		text  string
		keep  time.Duration
		wrong bool
	}{{"keep: soon\n", time.Minute, true}, {"keep: 1m\n", time.Minute, false}, {"keep: 2m\n", 2 * time.Minute, false}, {"", 10 * time.Minute, false}} {
		write(step.text)
		if err := file.again(s); (err != nil) != step.wrong || time.Duration(s.keep.Load()) != step.keep {
			t.Errorf("%q: %v, keep is %v", step.text, err, time.Duration(s.keep.Load()))
		}
	}
	file.Fixed = true
	write("keep: 5m\n")
	if err := file.again(s); err != nil || time.Duration(s.keep.Load()) != 10*time.Minute {
		t.Errorf("the command line does not take precedence: %v, keep is %v", err, time.Duration(s.keep.Load()))
	}
}
