// SPDX-License-Identifier: Apache-2.0

package roff

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"time"
)

var date = regexp.MustCompile(`(?m)^(\.TH \S+ \d )\S+`)

// Compare compares the file of a page with what it should be, except for its date. With update it
// writes the file, with today's date, instead of returning an error.
func Compare(path, page string, update bool) error {
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	undated := func(text []byte) []byte { return date.ReplaceAll(text, []byte("$1")) }
	if bytes.Equal(undated(old), undated([]byte(page))) {
		return nil
	}
	if !update {
		return fmt.Errorf("%s is out of date: go test ./internal/docs ./cmd/vramprof -run Man -update writes it", path)
	}
	today := []byte("${1}" + time.Now().UTC().Format(time.DateOnly))
	return os.WriteFile(path, date.ReplaceAll([]byte(page), today), 0o644)
}
