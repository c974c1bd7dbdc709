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
