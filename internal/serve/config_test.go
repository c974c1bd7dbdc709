// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"slices"
	"strings"
	"testing"
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
