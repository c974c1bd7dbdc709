// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"testing"
)

// TestReadingNamesTheFile without what a terminal obeys.
func TestReadingNamesTheFile(t *testing.T) {
	if got := readingText("a\x1b[31m.vram")(60, 200); got != "reading a[31m.vram: 30%" {
		t.Errorf("it reads %q", got)
	}
	if progress, _ := showReading(&bytes.Buffer{}, "x"); progress != nil {
		t.Error("it is shown where there is no terminal")
	}
}

// TestMomentsHaveAUnit: "--between 2,8" was titled "From 2 to 8".
func TestMomentsHaveAUnit(t *testing.T) {
	for text, want := range map[string]string{"2": "2s", "1.5": "1.5s", "12m30s": "12m30s", "0": "begin", "end": "end", "step:4": "step:4"} {
		if m, err := ParseMoment(text); err != nil || m.String() != want {
			t.Errorf("%s is %q, %v; want %q", text, m, err, want)
		}
	}
}
